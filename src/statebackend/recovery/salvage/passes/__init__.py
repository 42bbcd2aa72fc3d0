"""The passes of a salvage, a module each; every ``run`` takes the evidence and the target."""
