"""The example notebook, run headless in a real Jupyter kernel, whose loop is running all the time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

if TYPE_CHECKING:
    from tests.workplace import Workplace

NOTEBOOK = Path(__file__).parents[2] / "examples" / "frames.ipynb"
MODEL = '"model": "local/smollm2"'


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> str:
    """What the cell's last expression was shown as."""
    return "".join(output["data"]["text/plain"] for output in cell.outputs if output.output_type == "execute_result")


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel_from_top_to_bottom(workplace: Workplace) -> None:
    """Against the simulator: the embedded model would take a minute."""
    shutil.copy(NOTEBOOK.with_name("reviews.csv"), workplace.folder)
    notebook = read()
    asks, of_pandas, of_polars, functions = cells(notebook)
    assert MODEL in asks.source
    asks.source = asks.source.replace(MODEL, f'"model": "sim", "url": "{workplace.simulator.url}"')
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(workplace.folder)}}).execute()
    assert [line.split()[0] for line in shown(of_pandas).splitlines()[1:]] == ["a", "b", "c"]
    assert shown(of_pandas).count(" ok") == 3
    assert shown(of_polars).startswith("shape: (3, 3)")
    assert shown(of_polars).count("ok") == 3
    assert shown(functions) == "(True, 3)"


def test_the_notebook_is_kept_without_what_it_showed() -> None:
    assert [cell for cell in cells(read()) if cell.outputs or cell.execution_count] == []
