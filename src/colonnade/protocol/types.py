"""Every noun of the protocol, one struct each, free of revisions.

This is the door to the `types_*` chapters, each loaded when one of its names is first asked for:
`noun` (what all are made of; how `since`, `until` and `span` mark what a revision knows), `meta`
(the names in `_meta`), `content`, `tools`, `peers` (who speaks, what each side can do), `pages`
(what comes in pages, what may be kept), `catalogue` (what else a server offers), `conversation`
(how two sides meet), `questions`, `tasks`. To make a noun takes time, and most servers need few.

Rules: nothing is defined here. Import nouns from here, not from the chapters; what every call needs
by its own name, as `t.X` takes longer to find behind a door than in a plain module. `types.pyi`
beside this file says the same to editors and type checkers; a test keeps the two equal.
"""

from importlib import import_module

_CHAPTERS = {
    "noun": """
        ABSENT Answer InputResponseRequestParams LoggingLevel NotificationParams Noun Number
        ProgressToken RequestId RequestParams Result Span hints known since until
    """,
    "meta": """
        BAGGAGE_KEY BARE_RESERVED_KEYS CLIENT_CAPABILITIES_KEY CLIENT_INFO_KEY LOG_LEVEL_KEY
        MODEL_IMMEDIATE_RESPONSE_KEY PROGRESS_TOKEN_KEY PROTOCOL_VERSION_KEY RELATED_TASK_KEY
        SERVER_INFO_KEY SUBSCRIPTION_ID_KEY TASKS_EXTENSION_ID TRACEPARENT_KEY TRACESTATE_KEY
        reserved_meta_key valid_extension_id valid_meta_key
    """,
    "content": """
        Annotations AudioContent ContentBlock EmbeddedResource Icon IconTheme ImageContent
        ResourceContents ResourceLink Role TextContent UnknownContent Weight Whole
    """,
    "tools": """
        CallToolRequestParams CallToolResult TaskMetadata TaskSupport Tool ToolAnnotations
        ToolExecution
    """,
    "peers": """
        ClientCapabilities ClientTaskRequests ClientTasksCapability ElicitationCapability Envelope
        Implementation PromptsCapability ResourcesCapability RootsCapability SamplingCapability
        ServerCapabilities ServerTaskRequests ServerTasksCapability Settings TasksOfElicitation
        TasksOfSampling TasksOfTools ToolsCapability
    """,
    "pages": """
        CacheScope CacheableResult Cursor ListResult PaginatedRequestParams PaginatedResult
    """,
    "catalogue": """
        CompleteRequestParams CompleteResult Completion CompletionArgument CompletionContext
        GetPromptRequestParams GetPromptResult LOGGING_LEVELS ListPromptsResult
        ListResourceTemplatesResult ListResourcesResult ListToolsResult
        LoggingMessageNotificationParams MAX_COMPLETIONS Prompt PromptArgument PromptMessage
        PromptReference ReadResourceRequestParams ReadResourceResult Resource ResourceTemplate
        ResourceTemplateReference ResourceUpdatedNotificationParams SetLevelRequestParams
        SubscribeRequestParams Titled UnsubscribeRequestParams display_name severe_enough
    """,
    "conversation": """
        CancelledNotificationParams DiscoverResult EmptyResult EnvelopedParams ErrorObject
        InitializeRequestParams InitializeResult MissingRequiredClientCapabilityData
        NotificationMeta ProgressNotificationParams RelatedTaskMetadata RequestMeta ResultMeta
        SubscriptionFilter SubscriptionsAcknowledgedNotificationParams
        SubscriptionsListenRequestParams SubscriptionsListenResult UnsupportedProtocolVersionData
    """,
    "questions": """
        Block CreateMessageRequest CreateMessageRequestParams CreateMessageResult ElicitAction
        ElicitMode ElicitRequest ElicitRequestParams ElicitResult ElicitSchema ElicitValue
        ElicitationCompleteNotificationParams EnumItems EnumOption IncludeContext InputRequest
        InputRequiredResult ListRootsRequest ListRootsRequestParams ListRootsResult ModelHint
        ModelPreferences PrimitiveSchema PrimitiveType Root SamplingMessage
        SamplingMessageContentBlock StringFormat ToolChoice ToolChoiceMode ToolResultContent
        ToolUseContent URLElicitationRequiredData
    """,
    "tasks": """
        CancelTaskRequestParams CancelTaskResult CreateTaskResult ExtCancelTaskRequestParams
        ExtCancelTaskResult ExtCreateTaskResult ExtDetailedTask ExtGetTaskRequestParams
        ExtGetTaskResult ExtTask ExtTaskStatusNotificationParams ExtUpdateTaskRequestParams
        ExtUpdateTaskResult GetTaskPayloadRequestParams GetTaskPayloadResult GetTaskRequestParams
        GetTaskResult ListTasksResult Task TaskStatus TaskStatusNotificationParams
        TasksExtensionCapability
    """,
}
_HOMES = {name: chapter for chapter, names in _CHAPTERS.items() for name in names.split()}

__all__ = tuple(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    chapter = _HOMES[name]
    found = vars(import_module(f"colonnade.protocol.types_{chapter}"))
    globals().update({each: found[each] for each in _CHAPTERS[chapter].split()})
    return found[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
