"""Validates and runs notebooks, each in its own folder; what came out stands beside it as executed.ipynb.

    python notebooks.py FOLDER
"""

import pathlib
import sys

import nbformat
from nbclient import NotebookClient

for path in sorted(pathlib.Path(sys.argv[1]).glob("*/notebook.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    # By default what a cell says is waited for four seconds, too little on a busy machine.
    client = NotebookClient(
        notebook, timeout=120, iopub_timeout=120, allow_errors=True, resources={"metadata": {"path": path.parent}}
    )
    client.execute()
    nbformat.write(notebook, path.with_name("executed.ipynb"))
