"""The offline cloud: the synthesised app in an emulator on this machine, for `helix dev`, the demo and the tests."""
