"""Where runs begin and end: admission, the start of an execution, and the effects of an end."""
