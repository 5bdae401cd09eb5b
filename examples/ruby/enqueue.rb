#!/usr/bin/env ruby
# enqueue.rb LETTER KEY ARGS: stores a letter and the job to send it, or neither. It needs ruby-mysql2.
require "mysql2"

db = Mysql2::Client.new(socket: ENV["DB_SOCKET"], host: ENV["DB_HOST"], username: ENV.fetch("DB_USER"), password: ENV["DB_PASSWORD"], database: ENV.fetch("DB_NAME"))
letter, key, args = ARGV
db.query("START TRANSACTION") # without the commit all of it is undone
db.prepare("INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', ?, ?)").execute(key, args)
db.prepare("INSERT INTO letters (id) VALUES (?)").execute(letter)
db.query("COMMIT")
