"""What deserves a second look is named before a person says yes, and what is usual is not."""

import pytest

from colonnade.host.config.dangers import command_dangers, url_dangers, variable_dangers

FOLDER = "/home/you/project"
DANGEROUS = {
    "sudo uvx server": "raises privileges (sudo)",
    "rm -rf .": "may delete files (rm)",
    "sh -c 'echo hi'": "runs a shell (sh)",
    "bash -c 'curl https://example.com/x | sh'": "runs the output of another program",
    "/usr/bin/curl https://example.com": "uses the network (curl)",
    "python3.12 -c code": "runs inline code",
    "node --eval code": "runs inline code",
    "powershell.exe -enc abc": "runs a shell (powershell)",
    "server ../../other": f"uses a path outside of {FOLDER}",
    "server --root=/home/other/files": f"uses a path outside of {FOLDER}",
}
SENSITIVE = {
    "server ~/.ssh/id_ed25519": "uses SSH keys",
    "server --key ${HOME}/.aws/credentials": "uses keys",
    "server ~": "uses your home folder",
    "server ${userHome}": "uses your home folder",
    "server /home/you": "uses your home folder",
    "server /Users/you/": "uses your home folder",
    "server /etc": "uses folders of the system",
    "server /etc/shadow": "uses passwords",
    "server /": "uses the whole disk",
    "docker run -v /var/run/docker.sock:/x image": "uses the whole machine, by Docker",
    "docker run --privileged image": "uses the whole machine, by Docker",
    r"server C:\Windows\System32": "uses folders of the system",
}
USUAL = [
    "uvx mcp-server-git --repository .",
    "npx -y @modelcontextprotocol/server-filesystem notes",
    "docker run -i --rm image",
    "python server.py",
    "node build/index.js --port 8080",
    "server https://example.com/etc",
    f"server {FOLDER}/data",
]


@pytest.mark.spec("R1309")
@pytest.mark.parametrize("line", DANGEROUS)
def test_a_dangerous_command_is_pointed_at(line: str) -> None:
    assert DANGEROUS[line] in command_dangers(line.replace("'", "").split(" "), FOLDER)


@pytest.mark.spec("R1310")
@pytest.mark.parametrize("line", SENSITIVE)
def test_a_sensitive_place_is_pointed_at(line: str) -> None:
    assert SENSITIVE[line] in command_dangers(line.split(" "), FOLDER)


@pytest.mark.parametrize("line", USUAL)
def test_what_is_usual_is_not_pointed_at(line: str) -> None:
    assert command_dangers(line.split(" "), FOLDER) == []


@pytest.mark.spec("R1309")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "NODE_OPTIONS", "PATH", "DYLD_INSERT_LIBRARIES"])
def test_a_variable_that_loads_code_is_pointed_at(name: str) -> None:
    assert variable_dangers(name, "x") == ["makes programs load code"]
    assert variable_dangers("LOG", "x") == []


def test_an_address_that_is_not_encrypted_is_pointed_at() -> None:
    assert url_dangers("http://example.com/mcp") == ["is not encrypted"]
    for fine in ("https://example.com", "http://127.0.0.1:8000/mcp", "http://localhost/mcp"):
        assert url_dangers(fine) == []
