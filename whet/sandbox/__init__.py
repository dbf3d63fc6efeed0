"""Confined execution of programs that a model wrote, without root and without a container. Guide: docs/sandbox.md."""

from __future__ import annotations
