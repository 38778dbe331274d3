"""Targets: what to compile for, and what the compiler says a program needs.

Nothing is imported here: the analyses read `chips` without loading the compilers' side.
"""
