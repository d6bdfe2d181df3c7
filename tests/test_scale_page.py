"""The projections in docs/scale.md are those of the cost model."""

from pathlib import Path

from tests.commands import run

SCRIPT = Path(__file__).parent.parent / "scripts" / "update_scale.py"


def test_projections_are_up_to_date():
    code = f"import runpy, sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); "
    code += f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = run(code, "--check")
    assert done.returncode == 0, done.stderr
