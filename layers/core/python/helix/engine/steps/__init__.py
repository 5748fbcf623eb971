"""The steps of a run: buy a step, ask the model, stage its answer, fold the step or end the run with it."""
