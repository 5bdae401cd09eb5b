#!/usr/bin/env node
// enqueue.mjs LETTER KEY ARGS: stores a letter and the job to send it, or neither. So that it needs no package,
// the command mysql talks to the database; with a driver, use its placeholders.
import { spawnSync } from "node:child_process";

const [letter, key, args] = process.argv.slice(2);
const text = (value) => `CONVERT(X'${Buffer.from(value).toString("hex")}' USING utf8mb4)`;
const { DB_SOCKET, DB_HOST, DB_USER, DB_PASSWORD, DB_NAME } = process.env;
const { status } = spawnSync("mysql", [DB_SOCKET ? "--socket=" + DB_SOCKET : "--host=" + DB_HOST, "--user=" + DB_USER, DB_NAME], {
  env: { ...process.env, MYSQL_PWD: DB_PASSWORD ?? "" },
  stdio: ["pipe", "inherit", "inherit"],
  input: `START TRANSACTION; -- without the commit all of it is undone
INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', ${text(key)}, ${text(args)});
INSERT INTO letters (id) VALUES (${text(letter)});
COMMIT;`,
});
process.exit(status ?? 1);
