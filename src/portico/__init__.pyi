from portico.errors import AuthError as AuthError
from portico.errors import CannotConnect as CannotConnect
from portico.errors import ChannelError as ChannelError
from portico.errors import ConnectionLost as ConnectionLost
from portico.errors import Declined as Declined
from portico.errors import LocalProtocolError as LocalProtocolError
from portico.errors import LoginRequired as LoginRequired
from portico.errors import PorticoError as PorticoError
from portico.errors import ProtocolError as ProtocolError
from portico.errors import Refused as Refused
from portico.errors import RemoteError as RemoteError
from portico.errors import RemoteProtocolError as RemoteProtocolError
from portico.errors import ScopeRequired as ScopeRequired
from portico.errors import TimedOut as TimedOut
from portico.errors import ToolError as ToolError

__version__: str
