"""The Lua scripts of the Redis store: every change, with the limits of its principal.

The keys of one principal have one hash tag, so that they are in one slot of a cluster:

    <prefix>:{<digest of the principal>}:e:<name>   an entry: a string with its expiry
    <prefix>:{<digest of the principal>}:l:<name>   a log: a stream, its numbers are the ids
    <prefix>:{<digest of the principal>}:names      the names of entries: a sorted set, by bytes
    <prefix>:{<digest of the principal>}:ends       when each entry or log expires: a sorted set
    <prefix>:{<digest of the principal>}:costs      what each one costs: a hash; "" is their sum
    <prefix>:{<digest of the principal>}:marks      single-use marks: a sorted set by expiry

Rules: a script uses the keys that it is given and no others. The first write of a script that adds
something is one that Redis rejects if its memory is full, so that nothing is written then. Expired
members of `ends` are removed together with their costs: the sum never drifts. The clock is that of
the Redis server, which also expires the keys. Redis 6.2, Valkey 7.2 and later have all commands.
"""

import hashlib
from dataclasses import dataclass, field

# What scripts return instead of a result.
TOO_MANY_ENTRIES = -1
TOO_MANY_BYTES = -2
NOT_A_COUNTER = -3
OUT_OF_RANGE = -4


@dataclass(frozen=True, slots=True)
class LuaScript:
    """The source of a script, and its digest, by which Redis finds it."""

    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


_CLOCK = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end
"""

# The members of `ends` and `costs` are names after a letter: e for an entry, l for a log.
_INDEX = (
    _CLOCK
    + """
local names, ends, costs, thing = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member = ARGV[1]

local function name_of(one)
  return string.sub(one, 1, 1) == 'e' and string.sub(one, 2) or nil
end

local function forget(one)
  local cost = redis.call('HGET', costs, one)
  if not cost then return end
  redis.call('ZREM', ends, one)
  redis.call('HDEL', costs, one)
  if name_of(one) then redis.call('ZREM', names, name_of(one)) end
  if redis.call('EXISTS', ends) == 0 then
    redis.call('DEL', costs)
  else
    redis.call('HINCRBY', costs, '', '-' .. cost)
  end
end

-- Removes some expired members; whether there were any.
local function sweep()
  local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', '(' .. text(now), 'LIMIT', 0, 100)
  for _, one in ipairs(gone) do forget(one) end
  return #gone > 0
end

-- The cost of the thing as it is; nil if there is none, or an expired one.
local function held()
  local score = redis.call('ZSCORE', ends, member)
  if score and score ~= 'inf' and tonumber(score) < now then
    forget(member)
    score = nil
  end
  if score then return tonumber(redis.call('HGET', costs, member)) end
  if redis.call('EXISTS', thing) == 1 then redis.call('DEL', thing) end
  return nil
end

-- 0, or the code of the limit that does not allow as many entries and bytes more.
local function refusal(entries, size)
  local most_entries, most_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
  if most_entries < 0 then return 0 end
  while true do
    local code = 0
    if redis.call('ZCARD', ends) + entries > most_entries then
      code = -1
    elseif tonumber(redis.call('HGET', costs, '') or 0) + size > most_bytes then
      code = -2
    end
    if code == 0 or not sweep() then return code end
  end
end

local function expiry()
  return ARGV[5] ~= '' and now + tonumber(ARGV[5]) or nil
end

-- Counts what was written. The index expires a minute after its last member, so that nothing is
-- left of a principal that never returns; it is not renewed with each write.
local function keep(cost, old, ends_at)
  redis.call('HSET', costs, member, text(cost))
  redis.call('HINCRBY', costs, '', text(cost - (old or 0)))
  redis.call('ZADD', ends, ends_at and text(ends_at) or '+inf', member)
  if not old and name_of(member) then redis.call('ZADD', names, 0, name_of(member)) end
  local last = redis.call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2]
  local left, listed = redis.call('PTTL', costs), redis.call('PTTL', names)
  if last == 'inf' then
    if left >= 0 or listed >= 0 then
      for at = 1, 3 do redis.call('PERSIST', KEYS[at]) end
    end
  else
    local need = tonumber(last) - now
    if left < need or left > need + 120000 or listed == -1 then
      for at = 1, 3 do redis.call('PEXPIRE', KEYS[at], text(need + 60000)) end
    end
  end
  sweep()
end
"""
)

# member, entries at most, bytes at most, cost without the value, milliseconds or "",
# put | none | value (what is expected), that value, set | delete, the new value
WRITE = LuaScript(
    _INDEX
    + """
local old = held()
if ARGV[6] == 'none' then
  if old then return 0 end
elseif ARGV[6] == 'value' then
  if not old or redis.call('GET', thing) ~= ARGV[7] then return 0 end
end
if ARGV[8] == 'delete' then
  redis.call('DEL', thing)
  forget(member)
  return 1
end
local cost = tonumber(ARGV[4]) + #ARGV[9]
local code = refusal(old and 0 or 1, cost - (old or 0))
if code ~= 0 then return code end
local ends_at = expiry()
if ends_at then
  redis.call('SET', thing, ARGV[9], 'PXAT', text(ends_at))
else
  redis.call('SET', thing, ARGV[9])
end
keep(cost, old, ends_at)
return 1
"""
)

# member
REMOVE = LuaScript(
    _INDEX
    + """
redis.call('DEL', thing)
forget(member)
return 1
"""
)

# member, entries at most, bytes at most, cost without the value, milliseconds or "",
# the number to add in two parts that have 64 bits each
COUNT = LuaScript(
    _INDEX
    + """
local old = held()
local before = old and redis.call('GET', thing)
if before and before ~= '0' and not string.find(before, '^%-?[1-9]%d*$') then return -3 end
local function undo()
  if before then redis.call('SET', thing, before, 'KEEPTTL') else redis.call('DEL', thing) end
end
-- INCRBY has the 64 bits that a number of Lua does not.
for at = 6, 7 do
  local reply = redis.pcall('INCRBY', thing, ARGV[at])
  if type(reply) == 'table' then
    if string.find(reply.err, 'OOM') then return reply end
    if before and #before > 20 then return -3 end
    if at == 7 then undo() end
    return -4
  end
end
local after = redis.call('GET', thing)
if after == '-9223372036854775808' then
  undo()
  return -4
end
local cost = tonumber(ARGV[4]) + #after
local code = refusal(old and 0 or 1, cost - (old or 0))
if code ~= 0 then
  undo()
  return code
end
local ends_at = expiry()
if before then
  local score = redis.call('ZSCORE', ends, member)
  ends_at = score ~= 'inf' and tonumber(score) or nil
elseif ends_at then
  redis.call('PEXPIREAT', thing, text(ends_at))
end
keep(cost, old, ends_at)
return after
"""
)

# member, entries at most, bytes at most, cost without entries, milliseconds or "",
# cost of an entry beside its bytes, entries of a log at most, bytes of a log at most, the entry
APPEND = LuaScript(
    _INDEX
    + """
local old = held()
local base, overhead = tonumber(ARGV[4]), tonumber(ARGV[6])
local most_entries, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8])
local count = old and redis.call('XLEN', thing) or 0
local last, size = 0, #ARGV[9]
if count > 0 then
  local newest = redis.call('XREVRANGE', thing, '+', '-', 'COUNT', 1)[1][1]
  last = tonumber(string.match(newest, '^%d+'))
  size = size + old - base - count * overhead
end
local oldest, gone = last - count + 1, 0
local function is_full()
  return gone < count and (count - gone + 1 > most_entries or size > most_bytes)
end
while is_full() do
  local first = text(oldest + gone) .. '-0'
  for _, record in ipairs(redis.call('XRANGE', thing, first, '+', 'COUNT', 64)) do
    if not is_full() then break end
    size = size - #record[2][2]
    gone = gone + 1
  end
end
local cost = base + size + (count - gone + 1) * overhead
local code = refusal(old and 0 or 1, cost - (old or 0))
if code ~= 0 then return code end
redis.call('XADD', thing, text(last + 1) .. '-0', 'e', ARGV[9])
if gone > 0 then redis.call('XTRIM', thing, 'MINID', text(oldest + gone) .. '-0') end
local ends_at = expiry()
if ends_at then
  redis.call('PEXPIREAT', thing, text(ends_at))
else
  redis.call('PERSIST', thing)
end
keep(cost, old, ends_at)
return last + 1
"""
)

# unused, the first name with its bracket, the bound of names with its bracket, how many
NAMES = LuaScript(
    _INDEX
    + """
sweep()
local found, from, most = {}, ARGV[2], tonumber(ARGV[4])
while #found < most do
  local page = redis.call('ZRANGEBYLEX', names, from, ARGV[3], 'LIMIT', 0, most)
  local members = {}
  for at, name in ipairs(page) do members[at] = 'e' .. name end
  if #page == 0 then break end
  for at, score in ipairs(redis.call('ZMSCORE', ends, unpack(members))) do
    local lives = score and (score == 'inf' or tonumber(score) >= now)
    if lives and #found < most then found[#found + 1] = page[at] end
  end
  from = '(' .. page[#page]
end
return found
"""
)

# the digest of the mark, milliseconds, marks at most
USE_ONCE = LuaScript(
    _CLOCK
    + """
local marks, mark, ends_at = KEYS[1], ARGV[1], now + tonumber(ARGV[2])
local score = redis.call('ZSCORE', marks, mark)
if score and tonumber(score) >= now then return 0 end
local before = '(' .. text(now)
if redis.call('ZCARD', marks) >= tonumber(ARGV[3]) then
  redis.call('ZREMRANGEBYSCORE', marks, '-inf', before)
  if redis.call('ZCARD', marks) >= tonumber(ARGV[3]) then return -1 end
end
redis.call('ZADD', marks, text(ends_at), mark)
if redis.call('PTTL', marks) < ends_at - now then
  redis.call('PEXPIREAT', marks, text(ends_at + 60000))
end
local gone = redis.call('ZRANGEBYSCORE', marks, '-inf', before, 'LIMIT', 0, 100)
if #gone > 0 then redis.call('ZREM', marks, unpack(gone)) end
return 1
"""
)

# the first id; a script, since redis-py changes the reply to XRANGE itself
READ = LuaScript("return redis.call('XRANGE', KEYS[1], ARGV[1], '+')")

# In a cluster a message goes to the node of its principal, and from there to all. message
PUBLISH = LuaScript("return redis.call('PUBLISH', KEYS[1], ARGV[1])")
