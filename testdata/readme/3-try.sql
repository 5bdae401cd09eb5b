INSERT INTO users (id, username) VALUES (12345, 'ben'), (98765, 'ada');
START TRANSACTION;
INSERT INTO contacts (user_id, contact_id) VALUES (12345, 98765);
INSERT INTO tasks (type, subject, args)
  VALUES ('add_contact', 12345, JSON_OBJECT('contact_id', '98765'));
COMMIT;
START TRANSACTION;
UPDATE users SET last_upload = 1363665432 WHERE id = 98765;
INSERT INTO photos (owner_id, title, visibility, date_upload)
  VALUES (98765, 'The pier', 'public', 1363665432);
INSERT INTO tasks (type, subject) VALUES ('upload', 98765);
COMMIT;
