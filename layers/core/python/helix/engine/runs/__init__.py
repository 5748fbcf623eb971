"""The beginning and end of runs: admission, the start of an execution, and the effects of an end."""
