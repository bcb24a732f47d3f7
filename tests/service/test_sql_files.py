"""The SELECTs of `tests/sql` three ways: PostgreSQL, refreshed in full, refreshed by what changed."""
import pytest

from flowtest import statements

pytestmark = pytest.mark.any_major

#: How many SELECTs one installation holds; each is two tables.
EACH = 40
WORLDS = {path.stem: statements.read(path.stem) for path in sorted(statements.FOLDER.glob("*.sql"))}


def parts():
    """Lists worlds and which of their statements go together."""
    for name, world in WORLDS.items():
        count = -(-len(world.statements) // EACH)
        for part in range(count):
            yield pytest.param(name, part, count, id=f"{name}-{part + 1}")


def test_there_are_enough():
    assert sum(len(world.statements) for world in WORLDS.values()) >= 150


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name, part, count", parts())
def test_three_ways(database, make_flow, read, name, part, count):
    """In full at the last step only, where the tables have been filled, emptied and filled again."""
    three_ways(database, make_flow, read, WORLDS[name], (part, count), full_from=len(WORLDS[name].steps) - 1)


@pytest.mark.lane("random-sql")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name, part, count", parts())
def test_three_ways_at_every_step(database, make_flow, read, name, part, count):
    three_ways(database, make_flow, read, WORLDS[name], (part, count), full_from=0)


def three_ways(database, make_flow, read, world, part, full_from):
    # Every installation gets some of each section.
    chosen = world.statements[part[0] :: part[1]]
    computed = [s for s in chosen if not s.refused]
    sound = [s for s in computed if not s.fails]
    flow = statements.prepare(world, database, make_flow, computed)
    flow.allow(*[rf"\b(whole|auto)\.{s.name}\b" for s in computed if s.fails])
    flow.start().wait_ready()
    judge = statements.Judge(flow, read(flow))
    wrong = {}
    kinds = ("auto",)
    # The first content of both is computed the same way; what state was built beside it shows in the first step.
    blocked = statements.wait(flow, sound, kinds)
    for number, (where, step) in enumerate(world.steps):
        if number == full_from:
            statements.declare_whole(flow, computed)
            flow.reload()
            kinds = ("whole", "auto")
        database.transaction(*step)
        blocked = statements.wait(flow, sound, kinds)
        last = number == len(world.steps) - 1
        for s, why in judge.differences(computed, where, kinds, strangers=last).items():
            wrong.setdefault(s, why)
    wrong.update({name: f"{name} is blocked: {why}" for name, why in blocked.items()})
    for s in sound:
        if f"auto.{s.name}" in blocked:
            continue
        modes = statements.modes(judge.pyiceberg, f"auto.{s.name}")
        # The first refresh is always a full one.
        if not s.full and "FULL" in [mode for mode, _ in modes[1:]]:
            wrong.setdefault(s.name, f"line {s.line}: {s.sql}\n  refreshed as {modes}")
        if s.full and "INCREMENTAL" in [mode for mode, _ in modes]:
            wrong.setdefault(s.name, f"line {s.line}: {s.sql}\n  refreshed as {modes}")
    for s in computed:
        if s.fails and not wrong.pop(s.name, None):
            wrong[s.name] = f"line {s.line} has no defect any more: {s.fails}"
    for s in chosen:
        if s.refused:
            flow.transformation(s.name, f"CREATE DYNAMIC TABLE auto.{s.name} AS\n{s.sql};\n")
    wrong.update(statements.check_plan(flow, chosen))
    assert not wrong, "\n".join(wrong.values())
