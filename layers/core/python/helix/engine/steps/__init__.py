"""One step: buy it, ask the model, stage its answer, fold it or end the run with it."""
