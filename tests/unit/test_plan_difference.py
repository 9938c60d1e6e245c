"""Plans beside one another, and with their files cut short."""

from rankdeck.backends.plans import plan_difference, without_files

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
mpirun -np 4 run.py"""


def test_the_text_of_a_long_file_is_cut_and_its_commands_stay() -> None:
    assert without_files(PLAN, most=2) == [
        "# job a-1", "cat > run.py <<'EOF'", "one", "two", "# … 4 more lines", "EOF",
        "cat > hosts <<'EOF_'", "EOF", "n1", "EOF_", "mpirun -np 4 run.py",
    ]  # fmt: skip


def test_only_what_differs_is_said_and_not_the_id() -> None:
    other = PLAN.replace("a-1", "a-2")

    assert plan_difference(PLAN, "a-1", other, "a-2") == ()
    changed = plan_difference(PLAN, "a-1", other.replace("-np 4", "-np 8"), "a-2")
    assert [line for line in changed if line[0] in "+-"] == [
        "-mpirun -np 4 run.py",
        "+mpirun -np 8 run.py",
    ]
