"""The projections in docs/scale.md are those of the cost model."""

from pathlib import Path

from tests.commands import run

SCRIPT = Path(__file__).parent.parent / "scripts" / "update_scale.py"


def test_projections_are_up_to_date():
    done = run(f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')", "--check")
    assert done.returncode == 0, done.stderr
