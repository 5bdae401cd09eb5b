-- activityd: optional triggers. With them a site adopts activityd without a
-- change of its code: they keep users.last_upload from the photos, and insert a
-- task with every change that concerns the index, in the transaction of that
-- change. A site that inserts its tasks itself does not need them; both at once
-- does no harm.
--
-- Needs the tables of schema.sql, as tables: a view has no triggers. MySQL 8.0.13+
-- and MariaDB 10.6+. Either of
--
--   activityd schema --triggers --apply
--   mysql site < triggers.sql            (a first installation; the client understands DELIMITER)
--
-- installs them; `activityd schema --triggers --remove` removes them. Replace older ones by
-- activityd: the client locks nothing while it replaces one trigger after the other, so that
-- changes may go unreported. If it was the client, bring last_upload up afterwards, by which
-- those who were behind get their `upload`, and run `activityd verify --repair`. Triggers run
-- with the rights of the user who installed them, who must keep these. docs/setup.md says
-- what else to do once, and what triggers cannot see.
--
-- The tasks have no dedupe key. A unique key inside the site's transactions would
-- make them wait for each other; what is enqueued twice is done once more and
-- finds nothing to do. Every INSERT has VALUES: INSERT ... SELECT would lock the
-- numbering of the tasks until the end of the site's statement.

-- A trigger keeps the sql_mode of the session that makes it.
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';

DELIMITER //

-- users.last_upload bounds the dates of the photos that are not private. A photo that
-- somebody else may see, and that is newer than anything of its owner's, raises it: when
-- it is uploaded, shown (its visibility is 'private' no more), dated later, or given to
-- another owner. The task comes from the trigger on users below, so that a site which
-- keeps last_upload itself gets one task and not two. last_upload never falls here: it is
-- an upper bound. So a backdated photo changes nothing, and neither does one that is
-- deleted, made private, or shown to other people than before: what may be shown is asked
-- of the photos themselves at every read. A private photo costs one comparison.

-- The owner is locked before a photo that is not private is inserted. With a foreign key,
-- InnoDB locks the owner shared for the photo, and of two uploads of one owner that both
-- went on to raise last_upload one would be the victim of a deadlock. The same goes for
-- such a photo that is given to another owner. A photo that is shown or dated later is
-- locked before its owner is, and at REPEATABLE READ so are the gaps beside it: no trigger can
-- come before that. A transaction that shows many, beside another that uploads or shows photos
-- of that owner, may deadlock; transactions that lock the member first are spared that.
-- A private photo raises nothing, so nothing is locked here. The lock that a foreign key
-- takes for it is shared; a transaction that uploads for others after it asks for more, and
-- two of these, of one owner and at once, may deadlock, as they may without triggers where
-- the site raises last_upload itself. Writing to the member first spares these, too.
--
-- The triggers on updates come first. With the others first, a photo that is uploaded in
-- private and shown before the last is replaced would be missed.
DROP TRIGGER IF EXISTS activityd_photos_before_update//
CREATE TRIGGER activityd_photos_before_update BEFORE UPDATE ON photos FOR EACH ROW
BEGIN
  DECLARE the_owner BIGINT UNSIGNED;
  IF NEW.owner_id <> OLD.owner_id AND NEW.visibility <> 'private' THEN
    SET the_owner = (SELECT id FROM users WHERE id = NEW.owner_id FOR UPDATE);
  END IF;
END//

-- A visibility of NULL, where a site's column has it, counts as private.
DROP TRIGGER IF EXISTS activityd_photos_after_update//
CREATE TRIGGER activityd_photos_after_update AFTER UPDATE ON photos FOR EACH ROW
BEGIN
  IF NEW.visibility <> 'private' AND
    (COALESCE(OLD.visibility, 'private') = 'private' OR NEW.date_upload > OLD.date_upload OR NEW.owner_id <> OLD.owner_id)
  THEN
    UPDATE users SET last_upload = NEW.date_upload
    WHERE id = NEW.owner_id AND COALESCE(last_upload, 0) < NEW.date_upload;
  END IF;
END//

DROP TRIGGER IF EXISTS activityd_photos_before_insert//
CREATE TRIGGER activityd_photos_before_insert BEFORE INSERT ON photos FOR EACH ROW
BEGIN
  DECLARE the_owner BIGINT UNSIGNED;
  IF NEW.visibility <> 'private' THEN
    SET the_owner = (SELECT id FROM users WHERE id = NEW.owner_id FOR UPDATE);
  END IF;
END//

DROP TRIGGER IF EXISTS activityd_photos_after_insert//
CREATE TRIGGER activityd_photos_after_insert AFTER INSERT ON photos FOR EACH ROW
BEGIN
  IF NEW.visibility <> 'private' THEN
    UPDATE users SET last_upload = NEW.date_upload
    WHERE id = NEW.owner_id AND COALESCE(last_upload, 0) < NEW.date_upload;
  END IF;
END//

-- A contact that comes or goes. What it grants (is_friend, is_family) is read
-- with every answer and needs no task.

DROP TRIGGER IF EXISTS activityd_contacts_after_insert//
CREATE TRIGGER activityd_contacts_after_insert AFTER INSERT ON contacts FOR EACH ROW
BEGIN
  INSERT INTO tasks (type, subject, args)
  VALUES ('add_contact', NEW.user_id, JSON_OBJECT('contact_id', NEW.contact_id));
END//

DROP TRIGGER IF EXISTS activityd_contacts_after_update//
CREATE TRIGGER activityd_contacts_after_update AFTER UPDATE ON contacts FOR EACH ROW
BEGIN
  IF NEW.user_id <> OLD.user_id OR NEW.contact_id <> OLD.contact_id THEN
    INSERT INTO tasks (type, subject, args) VALUES
      ('remove_contact', OLD.user_id, JSON_OBJECT('contact_id', OLD.contact_id)),
      ('add_contact', NEW.user_id, JSON_OBJECT('contact_id', NEW.contact_id));
  END IF;
END//

DROP TRIGGER IF EXISTS activityd_contacts_after_delete//
CREATE TRIGGER activityd_contacts_after_delete AFTER DELETE ON contacts FOR EACH ROW
BEGIN
  INSERT INTO tasks (type, subject, args)
  VALUES ('remove_contact', OLD.user_id, JSON_OBJECT('contact_id', OLD.contact_id));
END//

-- A member whose last upload is later than it was, or is known for the first
-- time. A contact is a row of contacts and a row of users, so that a member who
-- comes back may have followers whose sets know nothing of it: the fan-out of an
-- upload adds it to them all, however many they are, and none of it is done here. It may
-- have contacts, too, and no set, since its deletion took it away: the refill makes one.

DROP TRIGGER IF EXISTS activityd_users_after_insert//
CREATE TRIGGER activityd_users_after_insert AFTER INSERT ON users FOR EACH ROW
BEGIN
  IF NEW.last_upload > 0 THEN
    INSERT INTO tasks (type, subject) VALUES ('upload', NEW.id);
  END IF;
  IF EXISTS (SELECT 1 FROM contacts WHERE user_id = NEW.id) THEN
    INSERT INTO tasks (type, queue, subject) VALUES ('refill', 'refill', NEW.id);
  END IF;
END//

DROP TRIGGER IF EXISTS activityd_users_after_update//
CREATE TRIGGER activityd_users_after_update AFTER UPDATE ON users FOR EACH ROW
BEGIN
  IF NEW.last_upload > COALESCE(OLD.last_upload, 0) OR NEW.last_upload > 0 AND NEW.id <> OLD.id THEN
    INSERT INTO tasks (type, subject) VALUES ('upload', NEW.id);
  END IF;
END//

-- A member who leaves: one task for every follower, before foreign keys delete
-- the contacts, because cascades fire no triggers; and one for its own set, which the
-- refill of who is no member deletes. Who is inserted again in the same transaction is
-- found there by these tasks, its set as it is now and its last upload lowered. The cost
-- is one row for each follower, in the transaction that deletes the member. To spare a transaction
-- that, delete the contacts of a member with very many followers before, in
-- transactions of some thousand rows. The LIMIT is more than there can be: it takes
-- the place of the session's sql_select_limit, which would leave followers out.
DROP TRIGGER IF EXISTS activityd_users_before_delete//
CREATE TRIGGER activityd_users_before_delete BEFORE DELETE ON users FOR EACH ROW
BEGIN
  DECLARE follower BIGINT UNSIGNED;
  DECLARE done BOOLEAN DEFAULT FALSE;
  DECLARE followers CURSOR FOR SELECT user_id FROM contacts WHERE contact_id = OLD.id LIMIT 18446744073709551615;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
  OPEN followers;
  each_follower: LOOP
    FETCH followers INTO follower;
    IF done THEN LEAVE each_follower; END IF;
    INSERT INTO tasks (type, subject, args)
    VALUES ('remove_contact', follower, JSON_OBJECT('contact_id', OLD.id));
  END LOOP;
  CLOSE followers;
  INSERT INTO tasks (type, queue, subject) VALUES ('refill', 'refill', OLD.id);
END//

DELIMITER ;
