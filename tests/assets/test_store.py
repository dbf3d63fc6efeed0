"""Built-in names: what they resolve to, and how a folder comes to be."""

import threading
import time

import pytest

from whet.assets import builtin, resolve_data, resolve_model, store
from whet.errors import UserError


def silent(line):
    pass


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def use_recipe(monkeypatch, make, disk=0):
    """Make the store know one built-in, whet/toy."""
    recipe = store.Recipe(version="v1", splits=("train",), disk=disk, make=make)
    monkeypatch.setattr(store, "recipes", lambda: {"toy": recipe})


def test_names_resolve_to_files_that_are_there(quickstart):
    assert resolve_model("whet/quickstart", silent) == str(quickstart / "model")
    assert resolve_data("whet/quickstart@train", silent) == str(quickstart / "train.jsonl")
    both = resolve_data("mine.jsonl, whet/quickstart@test", silent)
    assert both == f"mine.jsonl,{quickstart / 'test.jsonl'}"


@pytest.mark.parametrize(
    "name", ["org/name", "org/name@train", "data/train.jsonl", "a.jsonl,b.jsonl", "whet/a/b.jsonl"]
)
def test_other_names_stay_as_they_are(name):
    assert resolve_model(name, silent) == name
    assert resolve_data(name, silent) == name


def test_a_file_that_stands_here_is_no_builtin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whet").mkdir()
    (tmp_path / "whet" / "rows.jsonl").touch()
    assert resolve_data("whet/rows.jsonl", silent) == "whet/rows.jsonl"


def test_unknown_builtin_lists_those_that_exist():
    with pytest.raises(UserError, match=r"whet/quikstart.*whet/quickstart, whet/smollm2"):
        resolve_model("whet/quikstart", silent)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("whet/quickstart", "whet/quickstart@train or whet/quickstart@test"),
        ("whet/quickstart@dev", "whet/quickstart@train or whet/quickstart@test"),
        ("whet/smollm2@train", "is a model and has no data"),
    ],
)
def test_data_needs_a_split_that_exists(spec, message):
    with pytest.raises(UserError, match=message):
        resolve_data(spec, silent)


def test_unwritable_cache_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WHET_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(UserError, match="WHET_HOME"):
        builtin("whet/quickstart", silent)


def test_full_disk_is_noticed_before_work(home, monkeypatch):
    use_recipe(monkeypatch, make=lambda folder, say: pytest.fail("work was begun"), disk=1 << 60)
    with pytest.raises(UserError, match="MB are free"):
        builtin("whet/toy", silent)


def test_made_once_even_when_asked_for_twice_at_once(home, monkeypatch):
    made = []

    def make(folder, say):
        made.append(folder)
        (folder / "part").touch()
        time.sleep(0.2)
        assert not (home / "toy-v1").exists(), "the folder appears only when it is whole"
        (folder / "whole").touch()

    use_recipe(monkeypatch, make)
    threads = [threading.Thread(target=builtin, args=("whet/toy", silent)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (builtin("whet/toy", silent) / "whole").exists()


def test_half_made_folders_are_swept_away(home, monkeypatch):
    def fail(folder, say):
        (folder / "part").touch()
        raise KeyboardInterrupt

    use_recipe(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        builtin("whet/toy", silent)
    assert not list(home.glob("*toy-*"))
    (home / ".toy-killed").mkdir()
    use_recipe(monkeypatch, lambda folder, say: (folder / "whole").touch())
    assert builtin("whet/toy", silent) == home / "toy-v1"
    assert [path.name for path in home.glob("*toy-*")] == ["toy-v1"]
