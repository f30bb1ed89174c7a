"""How a client shows who it is: a person who logs in, or a program with credentials of its own.

    connect(url, auth=Login())
    connect(url, auth=ClientCredentials(issuer=..., client_id=..., client_secret=...))

Each is a plain value that can be used for many connections; what they have in common is kept in
its store. How each gets a token is a flow, which yields what it wants.

Rules: nothing happens when one is made, but that what cannot be right is refused. No secret is in
a `repr`. Credentials without an issuer are not accepted: a server could name any issuer, and
would have them sent there.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from colonnade.auth.client.authorization_code import choose_scopes, log_in
from colonnade.auth.client.discovery import Found
from colonnade.auth.client.machine_grants import (
    ID_TOKEN,
    SAML2,
    Assertion,
    Provider,
    assertion_token,
    enterprise_token,
    machine_client,
    own_token,
    text_of,
)
from colonnade.auth.client.registration import (
    BASIC,
    NONE,
    POST,
    Given,
    Registered,
    insist,
    known_client,
    register,
)
from colonnade.auth.client.steps import Chance, Erase, Flow, Listen, Load, Save
from colonnade.auth.client.storage import client_name, packed, unpacked
from colonnade.auth.client.tokens import GrantRefused, Holder, Tokens
from colonnade.auth.jose import SigningKey, read_private_key
from colonnade.auth.ssrf import is_this_machine
from colonnade.auth.urls import secure
from colonnade.errors import AuthError, InvalidArgument, InvalidArgumentType
from colonnade.ports import Store
from colonnade.protocol.http.challenges import Challenges

# A person finds a password, and a second factor in another room.
LOGIN_S: Final = 300.0
CLIENT_NAME: Final = "colonnade"

# Sends a person to a page, and gives the URL that the browser came back to.
OnVisit: TypeAlias = Callable[[str], Any]
# Tells a person of a page.
OnShow: TypeAlias = Callable[[str], None]


class AuthOptions(TypedDict, total=False):
    """What every way to log in takes beside what it needs itself.

    `scopes` to ask for beside those that a server wants; `keep=True` keeps what was got on this
    machine, `store` and `keys` where you say; `principal` keeps it apart for each of your users;
    `networks` are ranges of your own in which an issuer may be; with `dpop=True` tokens are bound
    to a key, also where the server does not ask for that.
    """

    scopes: Sequence[str]
    store: Store | None
    keys: Sequence[bytes]
    keep: bool
    principal: str
    networks: Sequence[str]
    dpop: bool


class Auth:
    """What every way to log in has; use one of the others."""

    def __init__(
        self,
        *,
        issuer: str = "",
        scopes: Sequence[str] = (),
        store: Store | None = None,
        keys: Sequence[bytes] = (),
        keep: bool = False,
        principal: str = "",
        networks: Sequence[str] = (),
        dpop: bool = False,
    ) -> None:
        if isinstance(scopes, str):
            raise InvalidArgumentType(
                "scopes is a list of texts, such as ['files:read']", argument="scopes"
            )
        if any(not one or not one.isascii() or set(one) & set(' "\\') for one in scopes):
            raise InvalidArgument(
                "a scope is a word without spaces, quotes or backslashes", argument="scopes"
            )
        if store is not None and not keys:
            raise InvalidArgument(
                "what is kept in a store of yours is sealed: pass keys=[secrets.token_bytes(32)] "
                "and keep them, or keep=True for a file and a key of our own",
                argument="keys",
            )
        if store is not None and keep:
            raise InvalidArgument(
                "keep=True is our own file, and store= is yours; choose one", argument="store"
            )
        self.issuer: str = issuer
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.store: Store | None = store
        self.keys: tuple[bytes, ...] = tuple(keys)
        self.keep: bool = keep
        self.principal: str = principal
        self.networks: tuple[str, ...] = tuple(networks)
        self.dpop: bool = dpop

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.issuer or 'any issuer'})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("what may hold a secret is not copied or pickled")

    # Whether it logs in with nobody at hand.
    unattended: bool = True

    @property
    def account(self) -> str:
        """Which client it is; kept credentials of another one are none of its business."""
        return ""

    @property
    def signer(self) -> SigningKey | None:
        """The key with which it shows that it is itself, where it has one."""
        return None

    def scopes_for(
        self, before: Sequence[str], challenges: Challenges, found: Found
    ) -> tuple[str, ...]:
        """What to ask for: offline access is for people who come back."""
        wanted = choose_scopes(self.scopes, before, challenges, found)
        return tuple(one for one in wanted if one != "offline_access")

    def grant(
        self, found: Found, chance: Chance, bound: SigningKey | None, scopes: Sequence[str]
    ) -> Flow[tuple[Registered, Tokens]]:
        """Get tokens at an issuer that was found."""
        raise NotImplementedError

    def check(self, found: Found) -> None:
        """Raise `AuthError` where what it has is not this issuer's."""
        insist(Given(issuer=self.issuer), found.issuer)


class Login(Auth):
    """A person logs in: in a browser, or wherever a program sends them.

    Without anything it registers itself where the server's issuer lets it. `client_id` (and
    `client_secret` with its `issuer`) is a client that was registered beforehand;
    `client_metadata_url` is a document that says who the client is. `scopes` are asked for beside
    those that the server names. `keep=True` remembers the login in an encrypted file of this
    machine; else it lasts as long as this value.

    `on_visit(url)` is for programs: it sends the person to the page, and gives the URL that they
    came back to, which begins with `redirect_uri`. Without it the page is opened in a browser
    (`browser=False`: only told), `on_show(url)` tells the person so, and a listener on this
    machine waits for the browser to come back.
    """

    unattended: bool = False

    def __init__(
        self,
        *,
        client_id: str = "",
        client_secret: str = "",
        issuer: str = "",
        client_metadata_url: str = "",
        client_name: str = CLIENT_NAME,
        redirect_uri: str = "",
        browser: bool = True,
        on_visit: OnVisit | None = None,
        on_show: OnShow | None = None,
        login_s: float = LOGIN_S,
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=issuer, **options)
        self._given = Given(client_id, client_secret, issuer, client_metadata_url, client_name)
        self._given.check()
        if redirect_uri:
            check_redirect(redirect_uri, on_visit is not None)
        elif on_visit is not None:
            raise InvalidArgument(
                "on_visit needs redirect_uri=, where the person comes back to",
                argument="redirect_uri",
            )
        self.redirect_uri: str = redirect_uri
        self.browser: bool = browser
        self.on_visit: OnVisit | None = on_visit
        self.on_show: OnShow | None = on_show
        self.login_s: float = login_s

    @property
    def account(self) -> str:
        """The client that it was given, if any."""
        return self._given.client_id or self._given.document

    def scopes_for(
        self, before: Sequence[str], challenges: Challenges, found: Found
    ) -> tuple[str, ...]:
        """With offline access where the issuer knows it: a person should not log in again soon."""
        return choose_scopes(self.scopes, before, challenges, found)

    def grant(
        self, found: Found, chance: Chance, bound: SigningKey | None, scopes: Sequence[str]
    ) -> Flow[tuple[Registered, Tokens]]:
        """Register where that is needed, and let the person log in."""
        client = known_client(self._given, found.issuer)
        name = client_name(found.server, found.issuer.issuer)
        if client is not None:
            uri = yield Listen(self.redirect_uri)
            return client, (
                yield from log_in(found, Holder(client, chance, None, bound), uri, scopes)
            )
        kept = unpacked(Registered, (yield Load(name)))
        if kept is not None and (
            kept.issuer != found.issuer.issuer or not kept.lasts(chance.now())
        ):
            kept = None
        uri = yield Listen(self.redirect_uri or (kept.redirect_uri if kept is not None else ""))
        for attempt in range(2):
            client = kept if kept is not None and kept.redirect_uri == uri else None
            fresh = client is None
            if client is None:
                client = yield from register(self._given, found.issuer, uri)
                yield Save(name, packed(client))
            holder = Holder(client, chance, None, bound)
            try:
                return client, (yield from log_in(found, holder, uri, scopes))
            except GrantRefused as refused:
                # It has forgotten a client that it registered some time ago.
                if (
                    fresh
                    or attempt
                    or refused.error not in ("invalid_client", "unauthorized_client")
                ):
                    raise
                kept = None
                yield Erase(name)
        raise AssertionError("the second attempt is with a fresh client")


class ClientCredentials(Auth):
    """A program logs in as itself: with a secret, or with a private key (PEM), which is better.

    The client was registered with the issuer beforehand. `method` is `client_secret_basic` or
    `client_secret_post` where the issuer's document does not say which one it takes.
    """

    def __init__(
        self,
        *,
        issuer: str,
        client_id: str,
        client_secret: str = "",
        private_key: str | bytes = "",
        algorithm: str = "",
        key_id: str = "",
        method: str = "",
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_needed(issuer), **options)
        if bool(client_secret) is bool(private_key):
            raise InvalidArgument("pass either client_secret= or private_key=, a PEM text")
        if method not in ("", BASIC, POST):
            raise InvalidArgument(f"method is {BASIC} or {POST}", argument="method")
        self._client_id = client_id
        self._secret = client_secret
        self._method = method
        self._key: SigningKey | None = None
        self._pem: tuple[str | bytes, str, str] | None = None
        if private_key:
            self._pem = (private_key, algorithm, key_id)
            self._key = read_private_key(*self._pem)

    @property
    def account(self) -> str:
        """The client that it is."""
        return self._client_id

    @property
    def signer(self) -> SigningKey | None:
        """The private key, where there is one."""
        return self._key

    def grant(
        self, found: Found, chance: Chance, bound: SigningKey | None, scopes: Sequence[str]
    ) -> Flow[tuple[Registered, Tokens]]:
        """A token for the program itself."""
        by_key = self._key is not None
        client = machine_client(
            found.issuer, self._client_id, self._secret, key=by_key, method=self._method
        )
        holder = Holder(client, chance, self._key, bound)
        return client, (yield from own_token(found, holder, scopes))


class EnterpriseLogin(Auth):
    """A user of an enterprise, vouched for by its identity provider (ID-JAG).

    `identity` is what the provider gave at sign-on, an ID token (or with `saml=True` a SAML
    assertion), or a function that gives it. `issuer`, `client_id` and `client_secret` are what the
    client is to the server's own authorization server.
    """

    def __init__(
        self,
        *,
        issuer: str,
        client_id: str,
        client_secret: str = "",
        idp_token_endpoint: str,
        idp_client_id: str,
        idp_client_secret: str = "",
        identity: Assertion,
        saml: bool = False,
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_needed(issuer), **options)
        _secured(idp_token_endpoint, "idp_token_endpoint=")
        self._client_id = client_id
        self._secret = client_secret
        # How it authenticates there: by what the specification shows, in the body.
        method = POST if idp_client_secret else NONE
        known = Registered(idp_token_endpoint, idp_client_id, idp_client_secret, method)
        self._provider = Provider(idp_token_endpoint, known, identity, SAML2 if saml else ID_TOKEN)

    @property
    def account(self) -> str:
        """The client that it is at the server's issuer."""
        return self._client_id

    def grant(
        self, found: Found, chance: Chance, bound: SigningKey | None, scopes: Sequence[str]
    ) -> Flow[tuple[Registered, Tokens]]:
        """The provider's word first, then a token for it."""
        client = machine_client(found.issuer, self._client_id, self._secret)
        holder = Holder(client, chance, None, bound)
        return client, (yield from enterprise_token(found, holder, self._provider, scopes))


class WorkloadIdentity(Auth):
    """A workload, vouched for by the platform that runs it: its JWT is exchanged for a token.

    `assertion` is the JWT, or a function that gives a new one: platforms rotate them.
    """

    def __init__(
        self,
        *,
        issuer: str,
        assertion: Assertion,
        client_id: str = "",
        client_secret: str = "",
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_needed(issuer), **options)
        self._client_id = client_id
        self._secret = client_secret
        self._assertion = assertion

    @property
    def account(self) -> str:
        """The client that it is, where it is one."""
        return self._client_id

    def grant(
        self, found: Found, chance: Chance, bound: SigningKey | None, scopes: Sequence[str]
    ) -> Flow[tuple[Registered, Tokens]]:
        """A token for the platform's word."""
        assertion = yield from text_of(self._assertion, "the assertion of the workload")
        client = machine_client(found.issuer, self._client_id, self._secret)
        holder = Holder(client, chance, None, bound)
        return client, (yield from assertion_token(found, holder, assertion, scopes))


def check_redirect(uri: str, anywhere: bool) -> None:
    """CL-26: on this machine, or https where a program serves it. Raises `LocalProtocolError`."""
    _secured(uri, "redirect_uri=")
    parts = urlsplit(uri)
    if "#" in uri:
        raise InvalidArgument("redirect_uri= has no fragment", argument="redirect_uri")
    if not anywhere and (parts.scheme != "http" or not is_this_machine(parts.hostname or "")):
        raise InvalidArgument(
            "redirect_uri= is on this machine (http://127.0.0.1:8123/callback), unless on_visit= "
            "says where the person came back to",
            argument="redirect_uri",
        )


def _needed(issuer: str) -> str:
    """CL-16: credentials that belong to nobody are nobody's. Raises `LocalProtocolError`."""
    if not issuer:
        raise InvalidArgument(
            "issuer= is the authorization server that these credentials belong to; without it, "
            "whichever server you connect to could have them sent anywhere",
            argument="issuer",
        )
    return _secured(issuer, "issuer=")


def _secured(url: str, what: str) -> str:
    try:
        return secure(url, what)
    except AuthError as error:
        raise InvalidArgument(str(error)) from None
