#!/usr/bin/env php
<?php
// enqueue.php LETTER KEY ARGS: stores a letter and the job to send it, or neither. It needs php-mysql.
$server = getenv('DB_SOCKET') ? 'unix_socket=' . getenv('DB_SOCKET') : 'host=' . getenv('DB_HOST');
$db = new PDO("mysql:$server;dbname=" . getenv('DB_NAME') . ';charset=utf8mb4', getenv('DB_USER'), getenv('DB_PASSWORD') ?: '', [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
[, $letter, $key, $args] = $argv;
$db->beginTransaction(); // without the commit all of it is undone
$db->prepare("INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', ?, ?)")->execute([$key, $args]);
$db->prepare('INSERT INTO letters (id) VALUES (?)')->execute([$letter]);
$db->commit();
