"""The offline cloud for `helix dev`, the demo and the tests: the synthesised app, deployed into an emulator on this
machine."""
