"""Fits of the parameters that estimators ship with, to measurements and to compilers' own figures."""
