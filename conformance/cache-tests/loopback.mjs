// Loaded before the suite's origin server: has it listen on loopback alone, and end when its standard input ends.

import net from 'node:net'

const listen = net.Server.prototype.listen
net.Server.prototype.listen = function (port) { return listen.call(this, Number(port), '127.0.0.1') }
process.stdin.resume().on('end', () => process.exit())
