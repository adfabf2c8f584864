"""What every adapter must hold, whoever wrote it: ``pytest --pyargs e2e.conformance --maru-connector NAME``.

``maru_e2e.pytest_plugin`` has the option. NAME is what ``maru-e2e run --connector`` takes, and may be given several
times. No engine is started.
"""
