-- Another width for every request: nothing that was made before is of use.
local width = 0
request = function()
   width = width + 1
   return wrk.format("GET", (wrk.path:gsub("WIDTH", tostring(60 + width % 540))))
end
