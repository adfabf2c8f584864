"""A model that ranks can share: random weights, made once. ``python -m e2e.tests.engine.tiny`` prints its folder.

The default model has nine heads over three KV heads, and two ranks can't share those.
"""

from e2e.stack.shaped import shaped_model


def tiny_model() -> str:
    """A Llama of 8 heads over 4 KV heads and 4 layers, with the default model's tokenizer."""
    return shaped_model("tiny")


if __name__ == "__main__":
    print(tiny_model())
