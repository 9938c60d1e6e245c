"""Plans beside one another, and with their files cut short."""

from rankdeck.backends.base import plan_difference, plan_lines

PLAN = """# job a-1
cat > run.py <<'EOF'
one
two
three
four
five
six
EOF
cat > hosts <<'EOF_'
EOF
n1
EOF_
export A=1
export B=2
mpirun -np 4 run.py"""


def test_files_of_a_plan_fold_into_a_line_each_and_commands_are_told_from_the_rest() -> None:
    assert [(line.text, line.kind) for line in plan_lines(PLAN, folded=True)] == [
        ("# job a-1", "note"),
        ("cat > run.py  # 6 lines", "setup"),
        ("cat > hosts  # 2 lines", "setup"),
        ("export  # 2 variables", "setup"),
        ("mpirun -np 4 run.py", "command"),
    ]
    whole = plan_lines(PLAN, folded=False)
    assert [line.text for line in whole] == PLAN.splitlines()
    assert [line.text for line in whole if line.kind == "command"] == ["mpirun -np 4 run.py"]


def test_only_what_differs_is_said_and_not_the_id() -> None:
    other = PLAN.replace("a-1", "a-2")

    assert plan_difference(PLAN, "a-1", other, "a-2") == ()
    changed = plan_difference(PLAN, "a-1", other.replace("-np 4", "-np 8"), "a-2")
    assert [line for line in changed if line[0] in "+-"] == [
        "-mpirun -np 4 run.py",
        "+mpirun -np 8 run.py",
    ]
