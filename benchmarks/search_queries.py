"""What people ask for, each with the tool of the corpus that they mean.

Rules: in people's words; a query that finds nothing is not made easier. `ASKED` was written before
anything was measured, and its failures were looked at when the ranking was improved; `LATER` was
written after that, and nothing was changed for it. Where several products have the same, the query
says which one, as a person would.
"""

# A server and its tool, then the words. A second line without a tool is of the tool above it.
ASKED = """
filesystem read_text_file: show me the first ten lines of config.ini
: what does the text file in my documents folder say
filesystem read_media_file: open the png image on my disk
: load an audio file from the hard drive
filesystem read_multiple_files: read these three files together
filesystem write_file: save this text to a new file
: overwrite a file on disk with new content
filesystem edit_file: change one line in a file and show me the diff
: replace foo with bar in main.py
filesystem create_directory: make a new folder
: mkdir
filesystem list_directory: what files are in this folder
: ls
filesystem list_directory_with_sizes: which files in the folder are the biggest
: show folder contents with file sizes
filesystem directory_tree: show the whole directory structure as a tree
filesystem move_file: rename a file
: move report.pdf into another folder
filesystem search_files: find all python files below this directory
: where is the file called budget.xlsx
filesystem get_file_info: when was this file last modified
: permissions of a file
filesystem list_allowed_directories: which directories am I allowed to access
memory create_entities: remember a new person in the knowledge graph
memory create_relations: remember that Ada works for Charles
memory add_observations: add a fact about someone you already know
memory delete_entities: forget everything about this person
memory delete_observations: remove a wrong fact from an entity
memory delete_relations: these two entities are no longer related
memory read_graph: show everything you remember
: dump the knowledge graph
memory search_nodes: search the memory for people who like hiking
memory open_nodes: open the nodes named Ada and Charles
git git_status: which files have I modified since the last commit
: git status
git git_diff_unstaged: show my unstaged changes
git git_diff_staged: what will be in the next commit
: diff of staged changes
git git_diff: compare my branch with main
git git_commit: commit my changes with a message
git git_add: stage these files
git git_reset: unstage everything
git git_log: show the recent commit history
: who committed last week in the local repo
git git_create_branch: start a new local branch from main
git git_checkout: switch branches
: check out the develop branch
git git_show: show what commit abc123 changed
git git_branch: list local and remote branches
time get_current_time: what time is it in Tokyo right now
: current time in a timezone
time convert_time: convert 3pm Berlin time to New York time
: if it is noon in London, what time is it in Sydney
fetch fetch: download a web page as markdown
: get the content of this url
sequential-thinking sequentialthinking: think step by step about a complicated problem
everything echo: repeat my message back
everything get-sum: add two numbers
everything get-env: print the environment variables
everything get-tiny-image: give me a small test image
everything gzip-file-as-resource: compress a file with gzip
everything trigger-long-running-operation: simulate a slow operation with progress
everything trigger-sampling-request: test sampling with the client's llm
everything get-roots-list: which roots did the client give
github create_or_update_file: update the readme file on github
github search_repositories: find github repositories about machine learning
github create_repository: create a private repo on github
github get_file_contents: read a file from a github repo
github push_files: push several files to github in one commit
github create_issue: open a bug report on github
: create github issue
github create_pull_request: open a PR on github
: create a pull request
github fork_repository: fork someone's github project
github create_branch: create a branch in my github repo
github list_commits: list commits of a github branch
github list_issues: show open issues in the github repo
github update_issue: close github issue 42
: change the labels of an issue
github add_issue_comment: comment on a github issue
github search_code: search code on github for a function
github search_issues: search issues and pull requests across github
github search_users: find a github user
github get_issue: details of issue number 7 on github
github get_pull_request: show me pull request 12
github list_pull_requests: list open pull requests on github
github create_pull_request_review: approve the PR and leave review comments
: request changes on a pull request
github merge_pull_request: merge the github pull request
github get_pull_request_files: which files does this pull request touch
github get_pull_request_status: did CI pass on this pull request
: are the checks of the pull request green
github update_pull_request_branch: update the pull request branch with the latest main
github get_pull_request_comments: read the review comments on a pull request
github get_pull_request_reviews: who has approved this pull request
gitlab create_merge_request: open a merge request on gitlab
gitlab create_issue: file an issue in a gitlab project
gitlab fork_repository: fork a gitlab project
gitlab get_file_contents: read a file from gitlab
gdrive gdrive_search: search my google drive for the budget
gdrive gdrive_read_file: open a google doc from drive
google-maps maps_geocode: what are the coordinates of this address in google maps
google-maps maps_reverse_geocode: google maps address for latitude 48.1 longitude 11.5
google-maps maps_search_places: find good restaurants near me on google maps
google-maps maps_place_details: opening hours and phone number of this place
google-maps maps_distance_matrix: distances between these cities with google maps
google-maps maps_elevation: how high above sea level is this mountain
google-maps maps_directions: google maps directions to the airport
postgres query: run a select on postgres
: query the postgresql database
sqlite read_query: select rows from sqlite
sqlite write_query: insert a row into the sqlite database
sqlite create_table: create a table in sqlite
sqlite list_tables: which tables does the sqlite database have
sqlite describe_table: show the columns of a sqlite table
sqlite append_insight: record a business insight in the memo
slack slack_list_channels: list slack channels
slack slack_post_message: post a message to slack
: tell the team on slack that the release is out
slack slack_reply_to_thread: reply in the slack thread
slack slack_add_reaction: add a thumbs up emoji to the slack message
slack slack_get_channel_history: what was said recently in the slack channel
slack slack_get_thread_replies: read all replies in a slack thread
slack slack_get_users: who is in our slack workspace
slack slack_get_user_profile: look up someone's slack profile
sentry get_sentry_issue: show the stack trace of this sentry error
: look at the exception reported in sentry
puppeteer puppeteer_navigate: go to a website with puppeteer
puppeteer puppeteer_screenshot: take a screenshot with puppeteer
puppeteer puppeteer_click: click the login button with puppeteer
puppeteer puppeteer_fill: fill in a form field with puppeteer
puppeteer puppeteer_select: choose an option from a dropdown
puppeteer puppeteer_hover: hover the mouse over a menu
puppeteer puppeteer_evaluate: execute javascript in the browser
brave-search brave_web_search: search the web with brave
brave-search brave_local_search: find a local plumber's phone number
: businesses near me
redis set: store a value in redis
: cache something in redis for an hour
redis get: read a redis key
redis delete: delete a key from redis
redis list: list all redis keys matching user:*
everart generate_image: generate an image with everart
aws-kb-retrieval retrieve_from_aws_kb: look something up in the bedrock knowledge base
mysql run_query: run sql on mysql
oracle list_tables: show the tables in oracle
snowflake describe_table: schema of a snowflake table
bigquery run_query: query bigquery
clickhouse explain_query: why is my clickhouse query slow
mongodb list_tables: list mongodb collections
elasticsearch list_indexes: list elasticsearch indexes
duckdb export_table: export a duckdb table to csv
sqlserver kill_session: kill a blocking session in sql server
cassandra list_databases: databases in cassandra
discord send_message: send a message on discord
teams reply_in_thread: reply to a thread in teams
mattermost search_messages: search mattermost for what Bob said about the outage
telegram upload_attachment: send a photo on telegram
zulip list_members: who is in this zulip stream
matrix invite_user: invite Eve to a matrix room
rocketchat get_history: recent messages in rocket chat
bitbucket open_pull_request: open a pull request on bitbucket
gitea close_issue: close an issue on gitea
azure-devops list_pipelines: azure devops build pipelines
codeberg tag_release: publish a release on codeberg
bitbucket decline_pull_request: reject a bitbucket pull request
gitea add_collaborator: give a colleague access to the gitea repo
dropbox upload_file: upload a file to dropbox
onedrive create_share_link: share a onedrive document with a link
box restore_version: restore an old version of a file in box
s3 list_folder: list objects in an s3 bucket
sftp download_file: download a file over sftp
nextcloud get_quota: how much space is left on nextcloud
webdav rename_object: rename a file on webdav
gmail send_email: send an email with gmail
outlook list_unread: unread mail in outlook
fastmail search_inbox: find the email from my landlord in fastmail
gmail create_draft: draft an email in gmail
outlook forward_email: forward this outlook mail to my boss
imap mark_as_spam: mark an imap message as junk
google-calendar create_event: schedule a meeting in google calendar
outlook-calendar find_free_slot: when are we all free according to outlook calendar
google-calendar list_events: what is on my google calendar tomorrow
calendly cancel_event: cancel my calendly appointment
caldav set_reminder: remind me before a caldav event
jira create_task: create a jira ticket
linear assign_task: assign the linear issue to Sam
asana list_my_tasks: my tasks in asana
trello move_task: move the trello card to done
jira log_work: log two hours on a jira ticket
youtrack link_tasks: mark a youtrack issue as duplicate of another
clickup search_tasks: search clickup tasks
notion create_page: create a notion page
confluence search_pages: search the confluence wiki
obsidian append_to_page: append a line to my obsidian note
evernote delete_page: delete an evernote note
playwright click_element: click a link with playwright
chrome read_console: javascript errors in the chrome console
firefox save_as_pdf: save the page as pdf in firefox
chrome list_network_requests: network requests of the page in chrome
selenium type_text: type into an input with selenium
google web_search: google something
bing image_search: find pictures of cats with bing
exa scholar_search: find scientific papers with exa
duckduckgo news_search: latest news on duckduckgo
openweather weather_forecast: will it rain in Paris this weekend, says openweather
accuweather air_quality: how is the air quality today on accuweather
meteostat historical_weather: how warm was it last July, meteostat
openweather weather_alerts: are there storm warnings on openweather
mapbox plan_route: bike route with mapbox
here traffic_situation: traffic jams on the way home
openstreetmap find_nearby: pharmacies nearby on openstreetmap
aws list_instances: list ec2 instances on aws
azure get_bill: how much will azure cost this month
gcp deploy_function: deploy a cloud function on gcp
digitalocean create_instance: create a new droplet on digitalocean
aws read_logs: read cloudwatch logs on aws
docker list_containers: which docker containers are running
kubernetes scale_service: scale the kubernetes deployment to five replicas
docker container_logs: show docker logs
kubernetes exec_in_container: run a shell command in a kubernetes pod
podman build_image: build an image with podman
docker prune_unused: clean up unused docker images
datadog query_metrics: cpu usage over the last hour in datadog
grafana list_dashboards: grafana dashboards
prometheus list_alerts: which prometheus alerts are firing
honeycomb search_traces: find slow traces in honeycomb
newrelic mute_alert: silence a new relic alert
salesforce create_contact: add a new lead to salesforce
hubspot find_contact: find a customer in hubspot
pipedrive move_deal: move the deal to the next stage in pipedrive
stripe refund_payment: refund a customer with stripe
paypal create_invoice: send a paypal invoice
stripe cancel_subscription: cancel a stripe subscription
shopify list_orders: new orders in shopify
woocommerce update_stock: set the inventory of a product in woocommerce
mastodon publish_post: toot something on mastodon
reddit search_posts: search reddit for opinions on keyboards
bluesky follow_account: follow someone on bluesky
jenkins trigger_build: start a jenkins build
circleci list_failed_tests: which tests failed on circleci
buildkite build_log: buildkite build output
teamcity abort_build: stop the running teamcity build
hue turn_on: turn on the lights in the living room
home-assistant set_temperature: make the bedroom warmer with home assistant
smartthings lock_door: lock the front door
spotify play_media: play some jazz on spotify
youtube get_transcript: transcript of a youtube video
spotify create_playlist: make a spotify playlist
dalle paint_picture: draw a picture of a fox with dalle
midjourney upscale_picture: make the midjourney image larger
yahoo-finance stock_quote: apple share price on yahoo finance
alphavantage exchange_rate: euro to dollar exchange rate with alphavantage
polygon crypto_price: bitcoin price from polygon
deepl translate_text: translate this sentence to French with deepl
google-translate detect_language: what language is this text, google translate
"""

LATER = """
filesystem read_text_file: print the last 20 lines of the log file
filesystem write_file: put these lines into notes.txt
filesystem list_directory: contents of my downloads folder
filesystem move_file: move this file to a different directory
filesystem get_file_info: how large is this file and when was it created
filesystem read_multiple_files: load all of these files in one go
filesystem directory_tree: recursive listing of a directory as json
memory create_entities: store a new entity
memory add_observations: note that Ada now lives in London
memory search_nodes: what do you know about Ada
memory delete_relations: remove the link between two people in the graph
git git_log: last five commits
git git_diff: difference between two commits
git git_add: add files to the index
git git_commit: record my staged work
git git_show: look at a single commit
time get_current_time: what is the local time in Brazil
time convert_time: meeting at 9 in Paris, when is that in Tokyo time
fetch fetch: fetch https://example.com
everything echo: echo hello
everything get-sum: sum of 3 and 4
github create_issue: file an issue on github with a label
github search_code: where on github is this api used in code
github get_file_contents: contents of setup.py in a github repository
github list_pull_requests: pull requests waiting in this github repository
github merge_pull_request: squash and merge a PR
github fork_repository: make my own copy of a github repo
gitlab create_branch: new branch on gitlab
gdrive gdrive_search: find a spreadsheet in google drive
google-maps maps_directions: how do I get from Munich to Venice by train
google-maps maps_distance_matrix: travel time between several places
sqlite write_query: delete rows from the sqlite database
slack slack_get_users: list slack members
slack slack_add_reaction: react to a slack message
sentry get_sentry_issue: details of a sentry issue
puppeteer puppeteer_screenshot: puppeteer picture of the page
puppeteer puppeteer_evaluate: run a script in the page
brave-search brave_web_search: brave search for recent articles
redis set: save a key in redis with expiry
mysql describe_table: columns of a mysql table
snowflake run_query: execute a statement in snowflake
mongodb export_table: dump a mongodb collection to csv
discord add_reaction: react with an emoji on discord
telegram send_message: write to my friend on telegram
teams list_channels: channels in microsoft teams
gitea open_issue: report a bug on gitea
bitbucket delete_branch: remove an old bitbucket branch
s3 upload_file: put a file into s3
dropbox search_content: search my dropbox
gmail search_inbox: search gmail for invoices
outlook reply_to_email: answer an email in outlook
google-calendar update_event: move my google calendar meeting to Friday
jira search_tasks: find jira tickets about login
linear create_task: new linear issue
notion update_page: edit a notion page
confluence list_page_comments: comments on a confluence page
playwright take_screenshot: screenshot with playwright
google news_search: google news about the election
openweather current_weather: temperature outside now, openweather
aws stop_instance: shut down an aws server
azure rotate_secret: rotate a secret in azure
docker run_container: start a docker image
kubernetes container_logs: logs of a kubernetes pod
grafana query_metrics: plot a metric in grafana
hubspot log_call: log a phone call in hubspot
stripe list_payments: payments received through stripe
shopify sales_report: shopify revenue last month
reddit publish_post: submit a post to reddit
jenkins build_status: did the jenkins build succeed
hue turn_off: switch off the hue lamp
spotify add_to_playlist: add this song to my spotify playlist
dalle remove_background: remove the background from a photo with dalle
deepl translate_document: translate a pdf with deepl
"""


def queries(asked: str = ASKED + LATER) -> list[tuple[str, str, str]]:
    """The words, and the server and tool that they mean."""
    found: list[tuple[str, str, str]] = []
    server = tool = ""
    for line in filter(None, asked.splitlines()):
        meant, _, words = line.partition(": ")
        if meant.strip(": "):
            server, tool = meant.split()
        found.append((words.strip(), server, tool))
    return found
