"""The models' programs, a module a family: `weights(config)`, and a function for every mode."""
