-- Exact products beyond 2^53, the limit of integers in doubles.
--
-- share(a, b, m)  returns the quotient and the remainder of a * b divided by m, both exact as long as the quotient is
-- below
--                 2^53; a, m below 2^45 (366 days in microseconds), b below 2^53
local function share(a, b, m)
  local product = a * b
  if product < 9007199254740992 then
    local quotient = math.floor(product / m)
    return quotient, product - quotient * m
  end
  -- Long multiplication and division, with digits of base 128.
  local digits = {}
  while b > 0 do
    digits[#digits + 1] = b % 128
    b = math.floor(b / 128)
  end
  local quotient, rest = 0, 0
  for index = #digits, 1, -1 do
    local part = rest * 128 + a * digits[index]
    local whole = math.floor(part / m)
    quotient, rest = quotient * 128 + whole, part - whole * m
  end
  return quotient, rest
end
