#!/usr/bin/env python3
"""enqueue.py LETTER KEY ARGS: stores a letter and the job to send it, or neither. It needs python3-pymysql."""
import os, sys
import pymysql

db = pymysql.connect(unix_socket=os.environ.get("DB_SOCKET"), host=os.environ.get("DB_HOST", "localhost"), user=os.environ["DB_USER"],
                     password=os.environ.get("DB_PASSWORD", ""), database=os.environ["DB_NAME"], autocommit=False)
letter, key, args = sys.argv[1:]
with db, db.cursor() as cursor:  # without the commit all of it is undone
    cursor.execute("INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', %s, %s)", (key, args))
    cursor.execute("INSERT INTO letters (id) VALUES (%s)", (letter,))
    db.commit()
