from pathlib import Path

import pytest

from e2e.base.errors import SettingsError
from e2e.replay.prompts import folder_tokenizer, read_documents

FOLDER = Path(__file__).parents[4] / "prompts"


def test_the_shipped_documents_are_enough_for_long_prompts():
    documents = read_documents(FOLDER.glob("*.txt"))
    assert len(documents) >= 6
    assert all(8_000 < len(text.encode()) < 14_000 for text in documents)
    # an English word is at least one token
    assert sum(len(text.split()) for text in documents) > 4096 + 64


@pytest.mark.parametrize(("content", "message"), [(None, "has no tokenizer.json"), ("{}", "can't be read")])
def test_a_folder_without_a_usable_tokenizer_is_refused(tmp_path, content, message):
    if content:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(SettingsError, match=message):
        folder_tokenizer(tmp_path)


def test_the_folder_tokenizer_adds_no_special_token(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "one": 1, "two": 2}, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert folder_tokenizer(tmp_path)("two one two one") == [2, 1, 2, 1]
