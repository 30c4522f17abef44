-- How long a key lives, as text: once for all that live as long, which mostly is all of a group.
local known, text
local function lifetime(millis)
  if millis ~= known then
    known, text = millis, string.format('%d', millis)
  end
  return text
end
