"""The scripts that Redis executes atomically: a transaction, and one page of a query.

Law: a transaction reads and checks everything before it writes anything, so it can fail only before its first write.
Numbers are compared and added digit by digit, because Lua's own numbers are doubles, exact only up to 2**53.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Script(NamedTuple):
    text: str
    """The source in Lua."""
    sha: str
    """The SHA-1 of the source, by which Redis caches the script."""


TEXTS: dict[str, str] = {}
"""The sources by their hashes."""


def script(text: str) -> Script:
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    TEXTS[sha] = text
    return Script(text, sha)


FORGET = r"""
local function forget(expiries, row, index, sort)
  redis.call('DEL', row)
  redis.call('ZREM', index, sort)
  redis.call('ZREM', expiries, row)
end

local function purge(expiries, far, count)
  local rows = redis.call('ZRANGEBYSCORE', expiries, '-inf', far, 'LIMIT', 0, count)
  for _, row in ipairs(rows) do
    local index, sort = string.match(row, '^([^:]*:[^:]*:[^:]*):(.*)$')
    forget(expiries, row, index, sort)
    redis.call('PUBLISH', index, '')
  end
  return #rows
end
"""

# KEYS: for each operation the row and its index; then the expiries.
# ARGV: the number of expired rows to remove; for each operation
#   kind (put, update, delete, check), sort, condition (none, absent, there), then four lists of names and texts, each
#   preceded by its length: equal, at_least, below, set; then add, the same with whole numbers.
# Returns the index of the first refused operation, or -1.
TRANSACT = script(
    FORGET
    + r"""
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function fields()
  local found = {}
  for n = 1, tonumber(take()) do
    local name = take()
    found[n] = {name, take()}
  end
  return found
end

-- A number's sign, the place of its point, and its digits without zeros around them; nil for what is no number.
-- Truth values are numbers as in Python.
local function number(text)
  if text == 'true' then text = '1' elseif text == 'false' then text = '0' end
  local sign, whole, rest = string.match(text, '^(%-?)(%d+)(.*)$')
  if not sign then return nil end
  local fraction, exponent = string.match(rest, '^%.?(%d*)[eE]?([%+%-]?%d*)$')
  if not fraction then return nil end
  local digits = whole .. fraction
  local zeros = #string.match(digits, '^0*')
  digits = string.match(string.sub(digits, zeros + 1), '^(.-)0*$')
  if digits == '' then return {sign = 0, point = 0, digits = ''} end
  local point = #whole - zeros + (tonumber(exponent) or 0)
  return {sign = sign == '-' and -1 or 1, point = point, digits = digits}
end

-- Below 0, 0 or above 0, as a is below b, b or above it; nil if one of them is no number.
local function compared(a, b)
  local x, y = number(a), number(b)
  if not x or not y then return nil end
  if x.sign ~= y.sign then return x.sign - y.sign end
  if x.point ~= y.point then return (x.point - y.point) * x.sign end
  for n = 1, math.max(#x.digits, #y.digits) do
    local one, other = string.byte(x.digits, n) or 48, string.byte(y.digits, n) or 48
    if one ~= other then return (one - other) * x.sign end
  end
  return 0
end

local function sum_of_whole(a, b)
  local width = math.max(#a, #b) + 1
  local function digit(text, n)
    local byte = n <= #text and string.byte(text, #text + 1 - n) or 45
    if byte == 45 then return 0 end
    return (byte - 48) * (string.byte(text, 1) == 45 and -1 or 1)
  end
  local function run(sign)
    local carry, out = 0, {}
    for n = 1, width do
      local here = sign * (digit(a, n) + digit(b, n)) + carry
      out[width + 1 - n] = here % 10
      carry = math.floor(here / 10)
    end
    return carry, table.concat(out)
  end
  local carry, digits = run(1)
  local sign = ''
  if carry < 0 then
    carry, digits = run(-1)
    sign = '-'
  end
  digits = string.match(digits, '^0*(.*)$')
  return digits == '' and '0' or sign .. digits
end

-- As `updated` adds: nothing, and every zero, is the whole number 0; a fraction is a double. Nil where there is no sum.
local function sum(a, b)
  if a == 'null' then a = '0' elseif a == 'true' then a = '1' end
  local known = number(a)
  if not known then return nil end
  if known.sign == 0 then a = '0' end
  if string.match(a, '^%-?%d+$') and string.match(b, '^%-?%d+$') then return sum_of_whole(a, b) end
  local found = tonumber(a) + tonumber(b)
  if found ~= found or math.abs(found) == math.huge then return nil end
  if found == math.floor(found) then return string.format('%.1f', found) end
  return string.format('%.17g', found)
end

local expiries = KEYS[#KEYS]
local expired = tonumber(take())
local plans = {}
for n = 1, (#KEYS - 1) / 2 do
  local row = KEYS[2 * n - 1]
  local plan = {row = row, index = KEYS[2 * n], kind = take(), sort = take()}
  local condition = take()
  local there = redis.call('EXISTS', row) == 1
  local holds = true
  if condition == 'absent' then
    holds = not there
  elseif condition == 'there' or plan.kind == 'update' then
    holds = there
  end
  for _, field in ipairs(fields()) do
    local stored = redis.call('HGET', row, field[1]) or 'null'
    holds = holds and (stored == field[2] or compared(stored, field[2]) == 0)
  end
  for _, field in ipairs(fields()) do
    local order = compared(redis.call('HGET', row, field[1]) or 'null', field[2])
    holds = holds and order ~= nil and order >= 0
  end
  for _, field in ipairs(fields()) do
    local order = compared(redis.call('HGET', row, field[1]) or 'null', field[2])
    holds = holds and order ~= nil and order < 0
  end
  if not holds then return n - 1 end
  plan.set = fields()
  local set = {}
  for _, field in ipairs(plan.set) do set[field[1]] = field[2] end
  for _, field in ipairs(fields()) do
    local before = set[field[1]] or redis.call('HGET', row, field[1]) or 'null'
    local after = sum(before, field[2])
    if not after then
      return redis.error_reply('HELIX cannot add ' .. field[2] .. ' to ' .. string.sub(before, 1, 40))
    end
    table.insert(plan.set, {field[1], after})
  end
  plans[n] = plan
end

local changed = {}
for _, plan in ipairs(plans) do
  if plan.kind == 'delete' then
    forget(expiries, plan.row, plan.index, plan.sort)
  elseif plan.kind ~= 'check' then
    if plan.kind == 'put' then
      redis.call('DEL', plan.row)
      redis.call('ZADD', plan.index, 0, plan.sort)
      if #plan.set == 0 then redis.call('HSET', plan.row, '\255', '') end
    end
    for _, field in ipairs(plan.set) do redis.call('HSET', plan.row, field[1], field[2]) end
    local expiry = redis.call('HGET', plan.row, 'ttl')
    if expiry and string.match(expiry, '^%-?%d') then
      redis.call('ZADD', expiries, tonumber(expiry), plan.row)
    else
      redis.call('ZREM', expiries, plan.row)
    end
  end
  if plan.kind ~= 'check' then changed[plan.index] = true end
end

purge(expiries, '(' .. redis.call('TIME')[1], expired)
for index in pairs(changed) do redis.call('PUBLISH', index, '') end
return -1
"""
)

# KEYS: the expiries. ARGV: the time before which rows expire, and the maximum number of rows to remove. Returns the
# number removed.
PURGE = script(FORGET + "return purge(KEYS[1], '(' .. ARGV[1], ARGV[2])")

# KEYS: the index. ARGV: the range's near and far end as ZRANGEBYLEX takes them, 1 if it is reversed, rows, bytes.
# Returns the number of rows that the page could have had (fewer than requested: there are no more), then alternating
# sort keys and rows.
QUERY = script(
    r"""
local verb = ARGV[3] == '1' and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX'
local sorts = redis.call(verb, KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[4])
local found, bytes = {#sorts}, 0
for _, sort in ipairs(sorts) do
  local row = redis.call('HGETALL', KEYS[1] .. ':' .. sort)
  table.insert(found, sort)
  table.insert(found, row)
  for _, field in ipairs(row) do bytes = bytes + #field end
  if bytes >= tonumber(ARGV[5]) then break end
end
return found
"""
)
