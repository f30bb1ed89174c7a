"""The protocol types, one struct each for all revisions.

Each module here is loaded when one of its names is first used: `base` (the base struct, `since`,
`until` and `available`, `_meta`, pagination), `content` (content blocks and tools), `capabilities`,
`server` (resources, prompts, completion, logging), `lifecycle` (initialize, discover, progress,
subscriptions), `client` (elicitation, sampling, roots), `tasks`. Defining a type takes time, and
most servers need few.

Rules: nothing is defined here. Import types from here, not from the modules; what every call needs
is imported by its own name, since `t.X` takes longer to find in a lazy module than in a plain one.
`__init__.pyi` beside this file says the same to type checkers; a test keeps the two equal.
"""

from importlib import import_module

_MODULES = {
    "base": """
        ABSENT BAGGAGE_KEY BARE_RESERVED_KEYS CLIENT_CAPABILITIES_KEY CLIENT_INFO_KEY CacheScope
        CacheableResult Cursor InputResponse InputResponseRequestParams LOG_LEVEL_KEY ListResult
        LoggingLevel MODEL_IMMEDIATE_RESPONSE_KEY NotificationParams Number PROGRESS_TOKEN_KEY
        PROTOCOL_VERSION_KEY PaginatedRequestParams PaginatedResult ProgressToken ProtocolType
        RELATED_TASK_KEY RequestId RequestParams Result RevisionRange SERVER_INFO_KEY
        SUBSCRIPTION_ID_KEY TASKS_EXTENSION_ID TRACEPARENT_KEY TRACESTATE_KEY field_annotations
        field_ranges reserved_meta_key since until valid_extension_id valid_meta_key
    """,
    "content": """
        Annotations AudioContent CallToolRequestParams CallToolResult ContentBlock EmbeddedResource
        Icon IconTheme ImageContent Priority ResourceContents ResourceLink Role TaskMetadata
        TaskSupport TextContent Tool ToolAnnotations ToolExecution UnknownContent UnknownMembers
    """,
    "capabilities": """
        ClientCapabilities ClientTaskRequests ClientTasksCapability ElicitationCapability Envelope
        Implementation PromptsCapability ResourcesCapability RootsCapability SamplingCapability
        ServerCapabilities ServerTaskRequests ServerTasksCapability Settings TasksOfElicitation
        TasksOfSampling TasksOfTools ToolsCapability
    """,
    "server": """
        CompleteRequestParams CompleteResult Completion CompletionArgument CompletionContext
        GetPromptRequestParams GetPromptResult HasTitle LOGGING_LEVELS ListPromptsResult
        ListResourceTemplatesResult ListResourcesResult ListToolsResult
        LoggingMessageNotificationParams MAX_COMPLETIONS Prompt PromptArgument PromptMessage
        PromptReference ReadResourceRequestParams ReadResourceResult Resource ResourceTemplate
        ResourceTemplateReference ResourceUpdatedNotificationParams SetLevelRequestParams
        SubscribeRequestParams UnsubscribeRequestParams display_name severe_enough
    """,
    "lifecycle": """
        CancelledNotificationParams DiscoverResult EmptyResult EnvelopedParams ErrorObject
        InitializeRequestParams InitializeResult MissingRequiredClientCapabilityData
        NotificationMeta ProgressNotificationParams RelatedTaskMetadata RequestMeta ResultMeta
        SubscriptionFilter SubscriptionsAcknowledgedNotificationParams
        SubscriptionsListenRequestParams SubscriptionsListenResult UnsupportedProtocolVersionData
    """,
    "client": """
        AnyInputRequest Block CreateMessageRequest CreateMessageRequestParams CreateMessageResult
        ElicitAction ElicitMode ElicitRequest ElicitRequestParams ElicitResult ElicitSchema
        ElicitValue ElicitationCompleteNotificationParams EnumItems EnumOption IncludeContext
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
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = tuple(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    module = _HOMES[name]
    found = vars(import_module(f"colonnade.protocol.types.{module}"))
    globals().update({each: found[each] for each in _MODULES[module].split()})
    return found[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
