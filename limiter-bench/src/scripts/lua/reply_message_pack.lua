-- The integers in one string, in the format that the server packs by itself.
local integers = reply
local function reply()
  return cmsgpack.pack(integers())
end
