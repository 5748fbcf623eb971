"""The guards of an agent, asked by the engine (docs/adr/0070-a-verdict-belongs-to-what-it-judged.md)."""
