"""The notebook runs as it stands, against the deployed app: launched, waited for, measured, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytestmark = [pytest.mark.long, pytest.mark.notebook, pytest.mark.filterwarnings("default")]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "digits.ipynb"


def kinds_of_outputs(notebook: Any) -> list[list[Any]]:
    return [
        [(output["output_type"], sorted(output.get("data", {}))) for output in cell.get("outputs", ())]
        for cell in notebook.cells
    ]


def test_every_cell_runs_and_says_what_its_reader_is_promised(
    deployed_app: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(deployed_app.state_dir))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    committed = kinds_of_outputs(notebook)
    client.execute()
    assert kinds_of_outputs(notebook) == committed, "the notebook was committed without its outputs"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = "".join(output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "Measurement(metric='loss', step=" in shown
    bar = next(output["data"]["text/html"] for output in outputs if output["output_type"] == "display_data")
    assert '<progress max="1" value="1.0000"' in bar
    assert ": completed, " in bar
    page = outputs[-1]["data"]["text/html"]
    assert "<td>completed</td>" in page
    assert "<th>loss</th>" in page
