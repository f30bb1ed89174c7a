"""What deserves a second look is named before a person says yes, and what is usual is not."""

import pytest

from colonnade.host.config.trust import of_address, of_command, of_variable

FOLDER = "/home/you/project"
DANGEROUS = {
    "sudo uvx server": "takes more rights than yours (sudo)",
    "rm -rf .": "may delete what is there (rm)",
    "sh -c 'echo hi'": "gives its words to a shell (sh)",
    "bash -c 'curl https://example.com/x | sh'": "runs what another program gives it",
    "/usr/bin/curl https://example.com": "uses the network (curl)",
    "python3.12 -c code": "runs code that stands in the line itself",
    "node --eval code": "runs code that stands in the line itself",
    "powershell.exe -enc abc": "gives its words to a shell (powershell)",
    "server ../../other": f"names a path outside of {FOLDER}",
    "server --root=/home/other/files": f"names a path outside of {FOLDER}",
}
SENSITIVE = {
    "server ~/.ssh/id_ed25519": "names SSH keys",
    "server --key ${HOME}/.aws/credentials": "names keys",
    "server ~": "names your home folder",
    "server ${userHome}": "names your home folder",
    "server /home/you": "names your home folder",
    "server /Users/you/": "names your home folder",
    "server /etc": "names folders of the system",
    "server /etc/shadow": "names passwords",
    "server /": "names the whole disk",
    "docker run -v /var/run/docker.sock:/x image": "names the whole machine, by Docker",
    "docker run --privileged image": "names the whole machine, by Docker",
    r"server C:\Windows\System32": "names folders of the system",
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
    assert DANGEROUS[line] in of_command(line.replace("'", "").split(" "), FOLDER)


@pytest.mark.spec("R1310")
@pytest.mark.parametrize("line", SENSITIVE)
def test_a_sensitive_place_is_pointed_at(line: str) -> None:
    assert SENSITIVE[line] in of_command(line.split(" "), FOLDER)


@pytest.mark.parametrize("line", USUAL)
def test_what_is_usual_is_not_pointed_at(line: str) -> None:
    assert of_command(line.split(" "), FOLDER) == []


@pytest.mark.spec("R1309")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "NODE_OPTIONS", "PATH", "DYLD_INSERT_LIBRARIES"])
def test_a_variable_that_loads_code_is_pointed_at(name: str) -> None:
    assert of_variable(name, "x") == ["makes programs load other code"]
    assert of_variable("LOG", "x") == []


def test_an_address_that_is_not_encrypted_is_pointed_at() -> None:
    assert of_address("http://example.com/mcp") == ["sends everything unencrypted"]
    for fine in ("https://example.com", "http://127.0.0.1:8000/mcp", "http://localhost/mcp"):
        assert of_address(fine) == []
