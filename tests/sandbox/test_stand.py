from sandbox.stand import write_unless_changed


def test_an_instance_file_that_somebody_changed_is_kept_and_this_is_said(tmp_path):
    file, copy, said = tmp_path / "demo.yaml", tmp_path / "copy.yaml", []
    file.write_text("of an earlier version")
    for text in ("first", "second"):
        write_unless_changed(file, text, copy, said.append)
        assert file.read_text() == text
    file.write_text("mine")
    write_unless_changed(file, "third", copy, said.append)
    assert (file.read_text(), said) == (
        "mine",
        [f"{file} was changed and is kept as it is; to have it written again, delete it"],
    )
    file.unlink()
    write_unless_changed(file, "third", copy, said.append)
    assert file.read_text() == "third"
