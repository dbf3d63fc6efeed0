"""The notebook that `whet new` writes runs from top to bottom in a Jupyter kernel and shows its plots."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fork_server import run_script

from whet.assets.project import write_project

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("nbclient", "ipykernel"))), reason="Jupyter is not installed: pip install -e '.[dev]'"
)


@pytest.fixture(autouse=True)
def own_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the user's Jupyter alone, whose kernel named python3 may be another interpreter."""
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def run_notebook(folder: Path, steps: int) -> Any:
    import nbclient
    import nbformat

    notebook = nbformat.read(folder / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    (training,) = [cell for cell in notebook.cells if "steps=40" in cell.source]
    training.source = training.source.replace("steps=40", f"steps={steps}")
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return notebook


def shown(notebook: Any, containing: str) -> dict[str, Any]:
    """Return what the cell with this text shows, by MIME type."""
    (cell,) = [cell for cell in notebook.cells if containing in cell.source]
    return {kind: value for output in cell.outputs for kind, value in output.get("data", {}).items()}


SHOWN = """
print(run.plot()._repr_svg_())
print(run.samples(split="val")._repr_html_())
print(run.generate(["Sort these digits: 3 9 1 7 5"], n=4))
"""


def test_its_cells_run_in_order_and_have_something_to_show(quickstart: Path, tmp_path: Path) -> None:
    """The same without Jupyter, which takes longer to start than the cells take."""
    write_project(tmp_path / "mine", "rl")
    cells = json.loads((tmp_path / "mine" / "notebook.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "steps=40" in code
    (tmp_path / "cells.py").write_text(code.replace("steps=40", "steps=2") + SHOWN)
    done = run_script(tmp_path / "cells.py", folder=tmp_path / "mine")
    assert done.code == 0, done.err
    assert "<svg" in done.out
    assert "<polyline" in done.out
    assert "<table" in done.out
    assert "Answer" in done.out.rpartition("</table>")[2]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [4, 40])
def test_it_runs_and_shows_its_plots(quickstart: Path, tmp_path: Path, steps: int) -> None:
    folder = tmp_path / "mine"
    write_project(folder, "rl")
    notebook = run_notebook(folder, steps)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    picture = shown(notebook, "run.plot()")["image/svg+xml"]
    assert picture.startswith("<svg")
    assert "<polyline" in picture
    assert "answer" in str(shown(notebook, "run.samples"))
    replies = shown(notebook, "run.generate")["text/plain"]
    assert replies.count("Answer") >= (4 if steps == 40 else 1)
