"""Families of tools: what a kind of product offers, and the products that offer it.

The names of products are only names here; what each of these tools is said to do is made up.

Rules: data only; `{0}` stands for the product.
"""

# A family: who offers it, and what each of them has.
FAMILIES: dict[str, tuple[str, str]] = {
    "databases": (
        "mysql oracle sqlserver duckdb snowflake bigquery clickhouse mongodb cassandra elasticsearch",
        """
        run_query | statement timeout limit | Execute a statement against {0} and give back the rows.
        list_databases | | Databases on the {0} server.
        list_tables | database | Tables or collections of a {0} database.
        describe_table | database table | Columns, types and keys in {0}.
        list_indexes | database table | Indexes that {0} keeps for a table.
        explain_query | statement | The plan that {0} would follow, to find out why something is slow.
        export_table | database table format | Write all rows of a table from {0} to CSV or Parquet.
        kill_session | session_id | End a connection to {0} that blocks others.
        """,
    ),
    "chats": (
        "discord teams mattermost telegram zulip rocketchat matrix",
        """
        send_message | channel text | Write to a channel or person on {0}.
        reply_in_thread | channel thread text | Answer below a message on {0}.
        add_reaction | message emoji | React to a message on {0}.
        list_channels | limit | Channels and rooms on {0}.
        get_history | channel limit before | Messages of a room on {0}, newest first.
        search_messages | query from_user after | Full-text search over what was said on {0}.
        invite_user | channel user | Bring somebody into a room on {0}.
        upload_attachment | channel file comment | Share a file on {0}.
        list_members | channel | Who is in a room on {0}.
        """,
    ),
    "forges": (
        "bitbucket gitea azure-devops codeberg",
        """
        create_repository | name visibility | Start an empty repository on {0}.
        list_repositories | owner | Repositories that you can see on {0}.
        read_source_file | repository path ref | One file of a repository on {0}.
        open_issue | repository title body | File a bug or wish on {0}.
        close_issue | repository number reason | Mark an issue as done on {0}.
        comment_issue | repository number text | Add a remark to an issue on {0}.
        open_pull_request | repository source target title | Ask on {0} that changes are taken in.
        approve_pull_request | repository number | Give your consent to changes on {0}.
        merge_pull_request | repository number strategy | Take in changes on {0}.
        decline_pull_request | repository number reason | Refuse changes on {0}.
        list_branches | repository | Branches of a repository on {0}.
        delete_branch | repository branch | Remove a branch on {0}.
        tag_release | repository tag notes | Publish a release with notes on {0}.
        list_pipelines | repository status | Builds of a repository on {0}.
        rerun_pipeline | repository id | Start a failed build again on {0}.
        add_collaborator | repository user role | Give a person access on {0}.
        """,
    ),
    "drives": (
        "dropbox onedrive box s3 sftp webdav nextcloud",
        """
        upload_file | local_path remote_path | Send a file from here to {0}.
        download_file | remote_path local_path | Bring a file from {0} to here.
        list_folder | path recursive | What is in a folder on {0}.
        delete_object | path | Remove a file or folder from {0} for good.
        copy_object | source target | Duplicate something within {0}.
        rename_object | path new_name | Give a file on {0} another name.
        create_share_link | path expires password | A link by which others get a file on {0}.
        restore_version | path version | Go back to an earlier state of a file on {0}.
        search_content | words | Find documents on {0} by what is in them.
        get_quota | | Space used and left on {0}.
        """,
    ),
    "mails": (
        "gmail outlook fastmail imap",
        """
        send_email | to subject body attachments | Write and send a letter through {0}.
        reply_to_email | id body | Answer a letter in {0}.
        forward_email | id to | Pass a letter in {0} on to somebody.
        search_inbox | query folder since | Find letters in {0}.
        read_email | id | One letter of {0} with its text.
        list_unread | limit | Letters in {0} that nobody has opened.
        archive_email | id | Take a letter out of the inbox of {0}.
        label_email | id label | Sort a letter in {0} under a label.
        create_draft | to subject body | Prepare a letter in {0} without sending it.
        mark_as_spam | id | Tell {0} that a letter is junk.
        """,
    ),
    "calendars": (
        "google-calendar outlook-calendar caldav calendly",
        """
        create_event | title start end attendees location | Put an appointment into {0}.
        list_events | from until | Appointments in {0} in a span of time.
        update_event | id start end | Move or change an appointment in {0}.
        cancel_event | id notify | Call off an appointment in {0}.
        find_free_slot | people duration | A time in {0} when everybody is free.
        respond_to_invitation | id answer | Accept or decline an invitation in {0}.
        set_reminder | id minutes | Be told by {0} before an appointment begins.
        list_calendars | | Calendars of the account in {0}.
        """,
    ),
    "trackers": (
        "jira linear asana trello clickup youtrack",
        """
        create_task | project title description assignee | Write down in {0} something to be done.
        update_task | id fields | Change a task in {0}.
        move_task | id column | Put a task of {0} into another column or state.
        assign_task | id person | Make somebody responsible for a task in {0}.
        list_my_tasks | status | What you have to do, by {0}.
        search_tasks | query project | Find tasks in {0}.
        add_comment | id text | Say something about a task in {0}.
        log_work | id hours | Book time that was spent on a task in {0}.
        list_sprints | project | Sprints or cycles of a project in {0}.
        link_tasks | id other kind | Say in {0} that a task blocks or repeats another.
        """,
    ),
    "notes": (
        "notion confluence obsidian evernote coda",
        """
        create_page | parent title content | Begin a page in {0}.
        read_page | id | The text of a page in {0}.
        update_page | id content | Rewrite a page in {0}.
        append_to_page | id content | Write something at the end of a page in {0}.
        search_pages | query | Find pages in {0}.
        list_children | id | Pages below a page in {0}.
        delete_page | id | Throw a page of {0} away.
        list_page_comments | id | Remarks that people left on a page in {0}.
        """,
    ),
    "browsers": (
        "playwright selenium chrome firefox",
        """
        open_url | url | Go to an address with {0}.
        take_screenshot | full_page | Capture what {0} shows.
        click_element | selector | Press a button or link in {0}.
        type_text | selector text | Enter text into a field in {0}.
        scroll_page | direction amount | Move the view in {0} up or down.
        press_key | key | Send a key of the keyboard to {0}.
        read_console | level | Errors and messages of the console in {0}.
        list_network_requests | filter | Requests that a page made in {0}.
        save_as_pdf | path | Print a page of {0} into a PDF.
        wait_for_text | text timeout | Let {0} wait until words appear.
        """,
    ),
    "searches": (
        "google bing duckduckgo kagi tavily exa",
        """
        web_search | query count | Pages of the web that {0} finds.
        news_search | query since | Recent news by {0}.
        image_search | query size | Pictures of the web by {0}.
        scholar_search | query year | Scientific papers by {0}.
        """,
    ),
    "weathers": (
        "openweather meteostat accuweather",
        """
        current_weather | city units | Temperature, wind and sky right now, from {0}.
        weather_forecast | city days | What the next days will be like, from {0}.
        historical_weather | city date | What it was like on a past day, from {0}.
        weather_alerts | region | Storm and flood warnings, from {0}.
        air_quality | city | Pollution and pollen, from {0}.
        sunrise_sunset | city date | When the sun comes and goes, from {0}.
        """,
    ),
    "maps": (
        "mapbox openstreetmap here",
        """
        geocode_address | address | Where an address lies, by {0}.
        reverse_geocode | latitude longitude | What is at a position, by {0}.
        plan_route | from to vehicle | A way by car, bike or on foot, by {0}.
        find_nearby | position category radius | Shops and sights around a position, by {0}.
        isochrone | position minutes | How far one gets in some minutes, by {0}.
        static_map | center zoom | A map as a picture, by {0}.
        traffic_situation | area | Jams and closed roads, by {0}.
        """,
    ),
    "clouds": (
        "aws azure gcp digitalocean",
        """
        list_instances | region state | Virtual machines in {0}.
        start_instance | id | Boot a virtual machine in {0}.
        stop_instance | id | Shut a virtual machine in {0} down.
        create_instance | image size region | Rent a new virtual machine in {0}.
        resize_instance | id size | Give a virtual machine in {0} more or fewer cores.
        list_buckets | | Object stores in {0}.
        get_bill | month | What {0} will charge, by service.
        read_logs | service since filter | Log lines of a service in {0}.
        deploy_function | name source runtime | Put a serverless function onto {0}.
        rotate_secret | name | Replace a password or key that {0} keeps.
        """,
    ),
    "containers": (
        "docker podman kubernetes",
        """
        list_containers | all | Containers or pods that run in {0}.
        run_container | image command ports | Start an image in {0}.
        stop_container | id timeout | End a container or pod in {0}.
        container_logs | id tail | Output of a container or pod in {0}.
        exec_in_container | id command | Run a command inside a container or pod of {0}.
        build_image | context tag | Make an image with {0}.
        pull_image | name | Fetch an image for {0}.
        prune_unused | | Free space that {0} no longer needs.
        scale_service | name replicas | Let {0} run more or fewer copies.
        inspect_volume | name | Where {0} keeps data, and how much.
        """,
    ),
    "monitors": (
        "datadog grafana prometheus newrelic honeycomb",
        """
        query_metrics | expression from until | Values of a metric over time in {0}.
        list_alerts | state | Alerts that fire in {0}.
        mute_alert | id until | Keep an alert of {0} quiet for a while.
        list_dashboards | tag | Dashboards in {0}.
        search_traces | service duration | Slow or failed traces in {0}.
        create_monitor | metric threshold | Let {0} watch a metric and raise an alarm.
        service_health | service | Whether a service is well, says {0}.
        """,
    ),
    "customers": (
        "salesforce hubspot pipedrive zoho",
        """
        create_contact | name mail company | Add a person to {0}.
        find_contact | query | Look a person up in {0}.
        update_contact | id fields | Correct what {0} knows of a person.
        create_deal | title amount stage | Start an opportunity in {0}.
        move_deal | id stage | Bring an opportunity in {0} one stage further.
        log_call | contact notes | Keep in {0} that you have phoned.
        list_pipeline | owner | All open opportunities in {0}.
        merge_duplicates | ids | Make one of two records in {0}.
        """,
    ),
    "payments": (
        "stripe paypal square",
        """
        create_invoice | customer items due | Bill a customer with {0}.
        refund_payment | payment amount | Give money back through {0}.
        list_payments | customer since | Money that came in through {0}.
        create_payment_link | product price | A page of {0} where people pay.
        cancel_subscription | id | End what a customer pays every month through {0}.
        get_balance | | Money that lies at {0}.
        list_disputes | status | Charges that customers of {0} contest.
        create_coupon | percent code | A discount in {0}.
        """,
    ),
    "shops": (
        "shopify woocommerce magento",
        """
        list_orders | status since | Orders in {0}.
        fulfill_order | id tracking | Mark an order in {0} as shipped.
        update_stock | sku quantity | Set how many pieces {0} has.
        create_product | title price images | Offer something new in {0}.
        change_price | sku price | Make something in {0} cheaper or dearer.
        find_customer | mail | A buyer in {0}.
        sales_report | from until | Turnover by day in {0}.
        """,
    ),
    "socials": (
        "mastodon bluesky reddit linkedin",
        """
        publish_post | text media | Post something on {0}.
        delete_post | id | Take a post on {0} down.
        read_timeline | limit | What people you follow on {0} say.
        search_posts | query | Posts on {0} about something.
        follow_account | handle | Follow somebody on {0}.
        list_mentions | since | Who spoke of you on {0}.
        post_statistics | id | Likes and views of a post on {0}.
        """,
    ),
    "builds": (
        "jenkins circleci buildkite teamcity",
        """
        trigger_build | job branch parameters | Start a job on {0}.
        abort_build | id | Stop a job on {0} that runs.
        build_status | id | Whether a job on {0} went well.
        build_log | id | Output of a job on {0}.
        list_failed_tests | id | Tests that broke in a job on {0}.
        list_agents | state | Machines on which {0} runs jobs.
        download_artifact | id name | A file that a job on {0} made.
        """,
    ),
    "houses": (
        "home-assistant hue smartthings",
        """
        turn_on | device | Switch a lamp or socket on with {0}.
        turn_off | device | Switch a lamp or socket off with {0}.
        set_temperature | room degrees | Make a room warmer or colder with {0}.
        lock_door | door | Lock a door with {0}.
        activate_scene | scene | Light and sound for an occasion with {0}.
        read_sensor | sensor | What a sensor of {0} measures.
        """,
    ),
    "players": (
        "spotify youtube plex",
        """
        play_media | title device | Play a song or film on {0}.
        pause_playback | device | Pause {0}.
        search_media | query kind | Songs, films and shows on {0}.
        create_playlist | name items | A new list of titles on {0}.
        add_to_playlist | playlist item | One more title for a list on {0}.
        get_transcript | id language | Words that are spoken or sung, by {0}.
        recommend_similar | id | More of the kind on {0}.
        """,
    ),
    "painters": (
        "dalle midjourney stable-diffusion",
        """
        paint_picture | prompt size style | Make a picture with {0} from words.
        vary_picture | image strength | Another version of a picture with {0}.
        upscale_picture | image factor | Enlarge a picture with {0}.
        remove_background | image | Cut out what is in front, with {0}.
        describe_picture | image | Say in words what a picture shows, with {0}.
        """,
    ),
    "markets": (
        "yahoo-finance alphavantage polygon",
        """
        stock_quote | symbol | The price of a share now, from {0}.
        price_history | symbol from until | Prices of a share over time, from {0}.
        company_fundamentals | symbol | Revenue, profit and debt of a company, from {0}.
        exchange_rate | from to | What one currency is worth in another, from {0}.
        crypto_price | coin | What a coin costs, from {0}.
        market_news | symbol | What is written about a company, from {0}.
        """,
    ),
    "languages": (
        "deepl google-translate libretranslate",
        """
        translate_text | text target source | Say a text in another language with {0}.
        detect_language | text | Which language a text is in, by {0}.
        translate_document | file target | A whole document in another language with {0}.
        """,
    ),
}
