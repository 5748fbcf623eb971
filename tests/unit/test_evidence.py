"""The demonstration model selects sentences to quote and words to search for."""

from helix.adapters.models.evidence import keywords, sentences_of, stem


def test_sentences_are_prose_only() -> None:
    text = """# Title

Some prose that is hard
wrapped over two lines. And a *second* sentence with `code_name` inside it.

| a | table | row | here |

```python
not_prose = "a line of code, which nobody wants quoted"
```

- A list item that is long enough to be quoted here.
"""
    assert list(sentences_of(text)) == [
        "Some prose that is hard wrapped over two lines.",
        "And a second sentence with code_name inside it.",
        "A list item that is long enough to be quoted here.",
    ]


def test_keywords_drop_what_carries_nothing() -> None:
    assert keywords("What happens to a run whose process dies?") == ["run", "process", "dies"]
    assert keywords("") == [] and len(keywords(" ".join(f"word{n}" for n in range(30)))) == 6
    assert stem("processes") == stem("process") and stem("checkpoints") == stem("checkpoint")
