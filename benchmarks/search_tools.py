"""A thousand tools to search: those of the published reference servers, and variations of them.

The names and parameters of the reference servers are theirs; what is said of each is in our words.
The variations are families of tools (a database, a chat, a tracker), each as several products would
offer it: with its own way to write names, and with sentences that are of no help, as people have.

Rules: the same list every time; nothing here knows a query.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from msgspec import structs

from benchmarks.search_families import FAMILIES
from colonnade.protocol import types as t

# One tool a line: its name, its parameters, what it does.
REFERENCE = {
    "filesystem": """
        read_file | path head tail | The whole content of a file as text (older name of read_text_file).
        read_text_file | path head tail | Give back a file as text; only its first or last lines if asked.
        read_media_file | path | A picture or a sound from the disk, as base64 with its MIME type.
        read_multiple_files | paths | Several files at once; one that cannot be read does not stop the others.
        write_file | path content | Make a new file or replace all that is in an old one. Careful: no question asked.
        edit_file | path edits dryRun | Replace lines of a text file by others and show the diff.
        create_directory | path | Make a folder, with the ones above it where they are missing.
        list_directory | path | Names of all files and folders in one folder, each marked as one or the other.
        list_directory_with_sizes | path sortBy | What is in a folder and how many bytes each takes.
        directory_tree | path excludePatterns | Everything below a folder as a nested JSON structure.
        move_file | source destination | Rename a file or folder, or put it somewhere else.
        search_files | path pattern excludePatterns | Look below a folder for names that fit a glob pattern.
        get_file_info | path | Size, times of creation and last change, permissions of one file or folder.
        list_allowed_directories | | Which folders this server may touch.
    """,
    "memory": """
        create_entities | entities | Put new nodes into the knowledge graph: people, places, things.
        create_relations | relations | Connect two entities of the graph, in active voice.
        add_observations | observations | Note further facts about an entity that is known already.
        delete_entities | entityNames | Take nodes and all their connections out of the graph.
        delete_observations | deletions | Take single facts away from entities.
        delete_relations | relations | Cut connections between entities.
        read_graph | | The complete knowledge graph.
        search_nodes | query | Look for entities by their names, types and observed facts.
        open_nodes | names | Particular entities by name, with what connects them.
    """,
    "git": """
        git_status | repo_path | State of the working tree.
        git_diff_unstaged | repo_path context_lines | Changes in the working tree that were not added yet.
        git_diff_staged | repo_path context_lines | Changes that the next commit would have.
        git_diff | repo_path target context_lines | How two branches or commits differ.
        git_commit | repo_path message | Record what is staged in the repository.
        git_add | repo_path files | Stage the content of files.
        git_reset | repo_path | Take everything back out of the staging area.
        git_log | repo_path max_count start_timestamp end_timestamp | History of commits, newest first.
        git_create_branch | repo_path branch_name base_branch | Begin a branch, from another one if wanted.
        git_checkout | repo_path branch_name | Switch to a branch.
        git_show | repo_path revision | What one commit contains.
        git_branch | repo_path branch_type contains not_contains | Local and remote branches.
    """,
    "time": """
        get_current_time | timezone | The time now in a time zone, by its IANA name.
        convert_time | source_timezone time target_timezone | A clock time of one zone as it is in another.
    """,
    "fetch": """
        fetch | url max_length start_index raw | Load a page of the internet and turn its HTML into Markdown.
    """,
    "sequential-thinking": """
        sequentialthinking | thought nextThoughtNeeded thoughtNumber totalThoughts isRevision | Think about a hard problem step by step, go back on a step, branch off.
    """,
    "everything": """
        echo | message | Says back what it was given.
        get-sum | a b | Adds two numbers.
        get-env | | Environment variables of the server, to debug how it was started.
        get-tiny-image | | A very small picture, to see whether images arrive.
        get-annotated-message | messageType includeImage | Shows how annotations give content a priority and an audience.
        get-resource-links | count | Links to several resources.
        get-resource-reference | resourceType resourceId | A reference that a client can resolve to a resource.
        get-structured-content | location | Structured data beside text, with an output schema.
        get-roots-list | | The roots that the client has told of.
        gzip-file-as-resource | name data outputType | Compress a file and hand it out as a resource.
        trigger-long-running-operation | duration steps | Pretends to work for a while and reports progress.
        trigger-elicitation-request | | Asks the person something by a form.
        trigger-sampling-request | prompt maxTokens | Asks the client's model to complete a prompt.
        toggle-simulated-logging | | Starts or stops log messages at random levels.
        toggle-subscriber-updates | | Starts or stops updates of subscribed resources.
    """,
    "github": """
        create_or_update_file | owner repo path content message branch sha | Write one file of a GitHub repository in a commit.
        search_repositories | query page perPage | Find GitHub repositories.
        create_repository | name description private autoInit | Open a new GitHub repository in your account.
        get_file_contents | owner repo path branch | What a file or folder of a GitHub repository contains.
        push_files | owner repo branch files message | Several files in a single commit.
        create_issue | owner repo title body assignees labels milestone | Report something in a GitHub repository.
        create_pull_request | owner repo title body head base draft | Propose that a branch is merged.
        fork_repository | owner repo organization | Your own copy of somebody's GitHub repository.
        create_branch | owner repo branch from_branch | A new branch on GitHub.
        list_commits | owner repo sha page perPage | History of a branch on GitHub.
        list_issues | owner repo state labels sort direction since | Issues of a GitHub repository, filtered.
        update_issue | owner repo issue_number title body state labels assignees | Change or close an issue.
        add_issue_comment | owner repo issue_number body | Say something below an issue.
        search_code | q order page per_page | Find code across GitHub repositories.
        search_issues | q order page per_page sort | Find issues and pull requests across GitHub.
        search_users | q order page per_page sort | Find people on GitHub.
        get_issue | owner repo issue_number | Details of one issue.
        get_pull_request | owner repo pull_number | Details of one pull request.
        list_pull_requests | owner repo state head base sort | Pull requests of a repository, filtered.
        create_pull_request_review | owner repo pull_number body event comments | Approve a pull request, ask for changes or comment on lines.
        merge_pull_request | owner repo pull_number commit_title merge_method | Merge a pull request.
        get_pull_request_files | owner repo pull_number | Files that a pull request changes.
        get_pull_request_status | owner repo pull_number | Whether all checks of a pull request have passed.
        update_pull_request_branch | owner repo pull_number expected_head_sha | Bring the newest of the base into a pull request.
        get_pull_request_comments | owner repo pull_number | Remarks on the lines of a pull request.
        get_pull_request_reviews | owner repo pull_number | Who approved a pull request and who did not.
    """,
    "gitlab": """
        create_or_update_file | project_id file_path content commit_message branch | Write one file of a GitLab project.
        search_repositories | search page per_page | Find GitLab projects.
        create_repository | name description visibility | Open a new GitLab project.
        get_file_contents | project_id file_path ref | What a file or folder of a GitLab project contains.
        push_files | project_id branch files commit_message | Several files in a single commit.
        create_issue | project_id title description assignee_ids labels | Report something in a GitLab project.
        create_merge_request | project_id title description source_branch target_branch | Propose that a branch is merged on GitLab.
        fork_repository | project_id namespace | Your own copy of a GitLab project.
        create_branch | project_id branch ref | A new branch on GitLab.
    """,
    "gdrive": """
        gdrive_search | query | Find files in Google Drive.
        gdrive_read_file | fileId | Content of a file in Google Drive; documents become Markdown, sheets CSV.
    """,
    "google-maps": """
        maps_geocode | address | Coordinates of an address.
        maps_reverse_geocode | latitude longitude | Address at given coordinates.
        maps_search_places | query location radius | Find places such as restaurants near somewhere.
        maps_place_details | place_id | Opening hours, phone, ratings of one place.
        maps_distance_matrix | origins destinations mode | Distances and travel times between several points.
        maps_elevation | locations | Height above sea level.
        maps_directions | origin destination mode | The route from one point to another.
    """,
    "postgres": """
        query | sql | Run a read-only SQL statement on PostgreSQL.
    """,
    "sqlite": """
        read_query | query | Run a SELECT on the SQLite database.
        write_query | query | Run INSERT, UPDATE or DELETE on the SQLite database.
        create_table | query | Make a new table in the SQLite database.
        list_tables | | Tables of the SQLite database.
        describe_table | table_name | Columns and types of a table.
        append_insight | insight | Add a finding to the memo of business insights.
    """,
    "slack": """
        slack_list_channels | limit cursor | Public channels of the Slack workspace.
        slack_post_message | channel_id text | Say something in a Slack channel.
        slack_reply_to_thread | channel_id thread_ts text | Answer in a thread.
        slack_add_reaction | channel_id timestamp reaction | Put an emoji on a message.
        slack_get_channel_history | channel_id limit | The last messages of a channel.
        slack_get_thread_replies | channel_id thread_ts | All answers in a thread.
        slack_get_users | cursor limit | Members of the Slack workspace.
        slack_get_user_profile | user_id | Who somebody is: name, title, mail, status.
    """,
    "sentry": """
        get_sentry_issue | issue_id_or_url | An error that Sentry has seen: title, level, first and last time, stack trace.
    """,
    "puppeteer": """
        puppeteer_navigate | url launchOptions | Open an address in the browser.
        puppeteer_screenshot | name selector width height | Picture of the page or of one element.
        puppeteer_click | selector | Click an element of the page.
        puppeteer_fill | selector value | Type into an input field.
        puppeteer_select | selector value | Choose an option of a drop-down.
        puppeteer_hover | selector | Hold the pointer over an element.
        puppeteer_evaluate | script | Run JavaScript in the console of the browser.
    """,
    "brave-search": """
        brave_web_search | query count offset | Search the web with Brave: news, articles, pages.
        brave_local_search | query count | Find local businesses and their addresses, hours and phone numbers.
    """,
    "redis": """
        set | key value expireSeconds | Keep a value under a key in Redis, for a time if wanted.
        get | key | The value of a key in Redis.
        delete | key | Remove one or more keys from Redis.
        list | pattern | Keys in Redis that fit a pattern.
    """,
    "everart": """
        generate_image | prompt model image_count | Paint pictures from a description, with a choice of models.
    """,
    "aws-kb-retrieval": """
        retrieve_from_aws_kb | query knowledgeBaseId n | Passages of an AWS knowledge base of Bedrock that fit a question.
    """,
}


class Listed(NamedTuple):
    """A tool of the corpus: its server, and what it is called whatever the style of its product."""

    server: str
    plain: str
    tool: t.Tool


def corpus() -> list[Listed]:
    """All of them, in one order."""
    found = [
        Listed(key, tool.name, tool) for key, text in REFERENCE.items() for tool in _tools(text)
    ]
    for products, text in FAMILIES.values():
        for nth, product in enumerate(products.split()):
            spoken = product.replace("-", " ").title()
            for at, tool in enumerate(_tools(text.replace("{0}", spoken))):
                noise = NOISE[(nth + at) % len(NOISE)]
                styled = STYLES[nth % len(STYLES)](product.replace("-", "_"), tool.name)
                told = f"{tool.description} {noise}".strip()
                other = structs.replace(tool, name=styled, description=told)
                found.append(Listed(product, tool.name, other))
    return found


def _tools(text: str) -> Iterator[t.Tool]:
    for line in text.strip().splitlines():
        name, parameters, description = (part.strip() for part in line.split("|"))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {one: {"type": "string"} for one in parameters.split()},
        }
        yield t.Tool(name=name, description=description, input_schema=schema)


def _camel(product: str, name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


# How products write names.
STYLES: tuple[Callable[[str, str], str], ...] = (
    lambda product, name: name,
    _camel,
    lambda product, name: f"{product}_{name}",
    lambda product, name: name.replace("_", "-"),
    lambda product, name: f"{product}.{name}",
)
# Words of descriptions that do not help to choose.
NOISE = (
    "",
    "Returns JSON.",
    "Requires that the user has signed in.",
    "Use this tool whenever the user asks for it.",
    "See the documentation for all options.",
    "Results come in pages; pass the cursor to get the next one.",
)
