"""Curves of runs as pictures and pages: read runs, lay out charts, write SVG, PNG or HTML."""
