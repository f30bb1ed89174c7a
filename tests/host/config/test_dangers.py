"""What deserves a second look is named before a person says yes, and what is usual is not."""

import pytest

from colonnade.host.config.dangers import (
    command_dangers,
    program_dangers,
    url_dangers,
    variable_dangers,
)

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
    "docker run -v /var/run/docker.sock:/x image": "uses the whole machine, through Docker",
    "docker run --privileged image": "uses the whole machine, through Docker",
    r"server C:\Windows\System32": "uses folders of the system",
}
USUAL = [
    "uvx mcp-server-git --repository .",
    "npx -y @modelcontextprotocol/server-filesystem notes",
    "docker run -i --rm image",
    "python server.py",
    "node build/index.js --port 8080",
    "./server https://example.com/etc",
    f"./server {FOLDER}/data",
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
@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "NODE_OPTIONS", "PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "GIT_SSH"),
        *("GIT_CONFIG_GLOBAL", "npm_config_script_shell", "JAVA_TOOL_OPTIONS", "PYTHONBREAKPOINT"),
    ],
)
def test_a_variable_that_loads_code_is_pointed_at(name: str) -> None:
    assert variable_dangers(name, "x") == ["makes programs load code"]


@pytest.mark.parametrize("name", ["LOG", "PYTHONUNBUFFERED", "GIT_AUTHOR_NAME", "npm_config_cache"])
def test_another_variable_is_not_pointed_at(name: str) -> None:
    assert variable_dangers(name, "x") == []


def test_an_address_that_is_not_encrypted_is_pointed_at() -> None:
    assert url_dangers("http://example.com/mcp") == ["is not encrypted"]
    for fine in ("https://example.com", "http://127.0.0.1:8000/mcp", "http://localhost/mcp"):
        assert url_dangers(fine) == []


# Commands that run code, any command or any file.
ASKED = [
    "sh -c x",
    "bash server.sh",
    "tcsh -c x",
    "csh -c x",
    "/bin/ash -c x",
    "elvish -c x",
    "nu -c x",
    "xonsh -c x",
    "cmd /c x",
    "pwsh -Command x",
    "osascript -e x",
    "mshta http://example.com/x.hta",
    "awk BEGIN{system(1)}",
    "gawk -f x.awk",
    "sed -n 1e x",
    "vim -c :!x",
    "ed -",
    "less +!x",
    "man -P x ls",
    "git -c alias.x=!x x",
    "git clone --upload-pack=x .",
    "make -f x",
    "cmake -P x.cmake",
    "just x",
    "tar --to-command=x -xf a.tar",
    "tar cf /dev/null --checkpoint-action=exec=x .",
    "zip -T -TT x a.zip b",
    "find . -delete",
    "find . -exec x ;",
    "fd -x x",
    "xargs x",
    "parallel x",
    "tee x",
    "cp a b",
    "mv a b",
    "ln -s a b",
    "chmod 777 x",
    "install -m 755 a b",
    "crontab x",
    "at now",
    "systemd-run x",
    "watch x",
    "strace -o x y",
    "gdb -ex x",
    "script -c x",
    "expect -c x",
    "tclsh x",
    "openssl enc -in x",
    "sqlite3 :memory: .shell",
    "psql -c x",
    "kubectl exec -it x -- y",
    "npm exec x",
    "npm exec -c x",
    "npm install x",
    "npx -c x",
    "npx --call x",
    "npx --registry http://example.com x",
    "npx -y -p x sh -c y",
    "npx tsx -e x",
    "pnpm exec x",
    "yarn exec x",
    "bun -e x",
    "bun add x",
    "deno eval x",
    "deno repl",
    "node",
    "node -",
    "node -r data:text/javascript,x server.js",
    "node --import=data:text/javascript,x server.js",
    "node --inspect-brk server.js",
    "node inspect server.js",
    "node -pe x",
    "tsx -e x",
    "python",
    "python -",
    "python -i server.py",
    "python -m timeit x",
    "python -mtimeit x",
    "python -m pdb -c x",
    "python -m http.server",
    "python -m code",
    "python -m pip install x",
    "python -m trace x",
    "python3.12 -Ic x",
    "py -3 -c x",
    "perl -e x",
    "ruby -e x",
    "ruby -rsocket server.rb",
    "php -r x",
    "php -S localhost:1 x",
    "lua -e x",
    "java -agentlib:jdwp server.jar",
    "java -XX:OnError=x -jar server.jar",
    "rscript -e x",
    "uv pip install x",
    "uv run awk x",
    "uv run -",
    "uv run -m timeit x",
    "uv run python -c x",
    "uvx --index-url http://example.com x",
    "uvx ipython -c x",
    "uvx mcp-proxy -- sh -c x",
    "uvx mcp-proxy python -c x",
    "pipx install x",
    "poetry run sh -c x",
    "conda run -n x bash -c y",
    "go run -exec x .",
    "go generate x",
    "cargo install x",
    "dotnet msbuild x",
    "docker build x",
    "docker run --privileged image",
    "docker run -v /:/host image",
    "docker run -v /var/run/docker.sock:/var/run/docker.sock image",
    "docker run --mount type=bind,src=/etc,dst=/x image",
    "docker run --pid=host image",
    "docker run --entrypoint sh image",
    "docker run image sh -c x",
    "docker exec x awk y",
    "docker -H tcp://example.com run image",
    "env",
    "env LD_PRELOAD=x server.py",
    "env -S x",
    "nohup awk x",
    "timeout 60 awk x",
    "busybox awk x",
    "sudo x",
    "curl https://example.com",
    "ssh host x",
    "rm -rf x",
    "env PYTHONPATH=x python -m server",
    "env NODE_PATH=x node server.js",
    "env npm_config_script_shell=x npm start",
    "node --experimental-loader=data:text/javascript,x server.js",
    "node --import=file:///tmp/x.mjs server.js",
    "node --import=\tda\nta:text/javascript,x server.js",
    "deno run --import-map=data:application/json,x server.ts",
    "bun data:text/javascript,process.exit()",
    "bun run https://example.com/x.js",
    "php php://filter/resource=x",
    "mcp-proxy sh -c x",
    "./awk x",
    "../bin/tcsh x",
    "/usr/bin/unknown",
    "unknown",
    "${SHELL} x",
]
# What realistic configuration files have.
NOT_ASKED = [
    *USUAL,
    "npx -y @modelcontextprotocol/server-filesystem .",
    "npx -y mcp-remote https://example.com/sse --header Authorization:x",
    "npx --yes @playwright/mcp@latest --headless",
    "npx -y --package=@scope/pkg server",
    "npx tsx src/index.ts",
    "bunx -y pkg",
    "bun run server.ts",
    "bun run start",
    "bun run start:mcp",
    "bun index.ts",
    "bun x pkg",
    "pnpm dlx pkg",
    "pnpm run mcp",
    "yarn dlx pkg",
    "npm run start",
    "npm start",
    "npm --prefix server run mcp",
    "node server.js",
    "node --enable-source-maps dist/index.js --stdio",
    "node --import tsx server.ts",
    "node --env-file=.env build/index.js",
    "/usr/local/bin/node build/index.js",
    "deno run -A jsr:@x/server",
    "deno run --allow-net --allow-read=. server.ts",
    "python server.py --config x.json",
    "python -m server_module --port 1",
    "python -m mcp_server_git",
    "python3.12 -u -m package.server -m x",
    "python -X utf8 -W ignore server.py",
    ".venv/bin/python server.py",
    "py -3.12 server.py",
    "uvx mcp-server-time --local-timezone Europe/Berlin",
    "uvx --from git+https://example.com/x.git x",
    "uvx --python 3.12 --with y x@latest",
    "uv run server.py",
    "uv run --script server.py",
    "uv --directory server run main.py",
    "uv run --with mcp mcp run server.py",
    "uv run --project x -m package.server",
    "uv run my-server",
    "uv tool run x",
    "pipx run mcp-server-x",
    "poetry run python -m server",
    "poetry -C x run server",
    "conda run -n x --no-capture-output python server.py",
    "docker run -i --rm -e TOKEN -e A=1 registry.example.com/github/github-mcp-server",
    "docker run -i --rm --mount type=bind,src=/home/you/x,dst=/x mcp/filesystem /x",
    "docker run --rm -i --network host --init mcp/postgres postgresql://x",
    "docker mcp gateway run --servers x",
    "docker exec -i container python server.py",
    "podman run -i --rm image",
    "go run ./cmd/server",
    "go run example.com/x/server@latest",
    "cargo run --release --bin server -- --port 1",
    "dotnet run --project src/Server",
    "dotnet server.dll",
    "dnx Package@1.0 --yes",
    "java -jar server.jar",
    "java -Xmx512m -Dx.y=z -jar build/server.jar --stdio",
    "php artisan mcp:serve",
    "php server.php",
    "ruby bin/server.rb",
    "env A=1 B=2 uvx mcp-server-git",
    "env PYTHONUNBUFFERED=1 python server.py",
    r"node --import=C:\server\loader.mjs server.js",
    "timeout -k 5 60 node server.js",
    "wsl -d Ubuntu npx -y pkg",
    "github-mcp-server stdio",
    "mcp-proxy https://example.com/sse",
    "fastmcp run server.py",
    "colonnade run server.py",
    "./server --stdio",
    "target/release/server",
    "bin/awkward-server",
]


def test_the_list_of_commands_is_as_long_as_it_should_be() -> None:
    assert len(set(ASKED)) >= 85


@pytest.mark.spec("R1309")
@pytest.mark.parametrize("line", ASKED)
def test_a_command_that_is_not_usual_for_a_server_is_pointed_at(line: str) -> None:
    assert list(program_dangers(line.split(" ")))


@pytest.mark.parametrize("line", NOT_ASKED)
def test_a_command_of_a_realistic_file_is_not_pointed_at(line: str) -> None:
    assert list(program_dangers(line.split(" "))) == []


def test_a_command_that_is_not_usual_is_named() -> None:
    assert list(program_dangers(["/usr/bin/awk", "x"])) == [
        "is not a usual command for a server (awk)"
    ]
