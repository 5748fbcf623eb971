"""One unit of work per module: load (ports), decide (core), act and save (ports). PROTOCOL law lives here."""
