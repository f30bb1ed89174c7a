// Loaded before a server that we did not write and that listens wherever it likes (node --import):
// it listens on a free port of this machine instead, and the address is printed.

import { Server } from 'node:net';

const { listen } = Server.prototype;
Server.prototype.listen = function (...given) {
    this.once('listening', () => console.log(`listening on http://127.0.0.1:${this.address().port}`));
    const listener = given.find(one => typeof one === 'function');
    return listen.call(this, { port: 0, host: '127.0.0.1' }, listener);
};
