PRAGMA application_id = 1146115138;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, kind TEXT NOT NULL,
    body TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
    UNIQUE (dataset, seq)
);
INSERT INTO "entries" VALUES(1,'digits',1,'2026-11-21T19:18:50.826248+00:00','cap','{"delta":0.0001,"epsilon":10.0}','0000000000000000000000000000000000000000000000000000000000000000','c828e3b5bfb11766f9ebc089be5ee0a6387e6b050af9018c7c1c9e2886b3db50');
INSERT INTO "entries" VALUES(2,'digits',2,'2026-11-21T19:18:52.841049+00:00','open_search','{"accounting":"composition","adjacency":"add_or_remove_one","delta":1e-06,"details":{"split":{"fraction":0.1,"seed":0,"set":"digits"}},"epsilon":1.0,"fingerprint":null,"noise_multiplier":3.0,"nonce":"daefdb8b9ffeb1830c4a979c328ad4a6","sample_rate":0.02,"search":"before","step_cap":10}','c828e3b5bfb11766f9ebc089be5ee0a6387e6b050af9018c7c1c9e2886b3db50','59622145ec7b1d621b004fa81d24809ae2db997d8617d5b446a8d0837ba566a1');
INSERT INTO "entries" VALUES(3,'digits',3,'2026-11-21T19:18:52.871285+00:00','reserve','{"search":"before","steps":10,"trial":"z"}','59622145ec7b1d621b004fa81d24809ae2db997d8617d5b446a8d0837ba566a1','b4112f93ca8ae0265702a51af06cc7b2ec9e32ed9b9f900f73d45675c04c6265');
INSERT INTO "entries" VALUES(4,'digits',4,'2026-11-21T19:18:52.901639+00:00','lease','{"search":"before","steps":10,"trial":"z"}','b4112f93ca8ae0265702a51af06cc7b2ec9e32ed9b9f900f73d45675c04c6265','1dc5c626e21cac9a042440c78233313737abfc343aaee725f6434fbbdb8ff89b');
INSERT INTO "entries" VALUES(5,'digits',5,'2026-11-21T19:18:52.921198+00:00','settle','{"search":"before","steps_taken":10,"trial":"z"}','1dc5c626e21cac9a042440c78233313737abfc343aaee725f6434fbbdb8ff89b','f23fd39448755c279b25337630ed66abb83dbc825387cbef7e6d0c953dc27831');
INSERT INTO "entries" VALUES(6,'digits',6,'2026-11-21T19:18:52.942707+00:00','close_search','{"search":"before"}','f23fd39448755c279b25337630ed66abb83dbc825387cbef7e6d0c953dc27831','ecf8cbc0ff69e878f78324266fe332b20ca40ff937adafbf53c4db0fcfc3ffc5');
INSERT INTO "entries" VALUES(7,'digits',7,'2026-11-21T19:18:53.054616+00:00','open_search','{"accounting":"composition","adjacency":"add_or_remove_one","delta":1e-05,"details":{"split":{"fraction":0.1,"seed":0,"set":"digits"}},"epsilon":4.0,"fingerprint":"f00d","noise_multiplier":2.0,"nonce":"4cbdf000f94b033387de0b1522cf5441","sample_rate":0.05,"search":"first","step_cap":1000}','ecf8cbc0ff69e878f78324266fe332b20ca40ff937adafbf53c4db0fcfc3ffc5','9eaef1feac4ab2b401ddb2279bb15053eafb73427390eec3d1a1f8694ca099fc');
INSERT INTO "entries" VALUES(8,'digits',8,'2026-11-21T19:18:53.073087+00:00','reserve','{"search":"first","steps":120,"trial":"a"}','9eaef1feac4ab2b401ddb2279bb15053eafb73427390eec3d1a1f8694ca099fc','2bf9595dbf2f7dd96218c3a910bfff5d7b744f27cc5459af9f741a874eb315dc');
INSERT INTO "entries" VALUES(9,'digits',9,'2026-11-21T19:18:53.097657+00:00','lease','{"search":"first","steps":120,"trial":"a"}','2bf9595dbf2f7dd96218c3a910bfff5d7b744f27cc5459af9f741a874eb315dc','a705e6bb52757f1984230d196526b02e81a6c70fc805fcf032d24118658feab1');
INSERT INTO "entries" VALUES(10,'digits',10,'2026-11-21T19:18:53.118766+00:00','settle','{"search":"first","steps_taken":120,"trial":"a"}','a705e6bb52757f1984230d196526b02e81a6c70fc805fcf032d24118658feab1','0928cf4c8ee534116a35964c16352847a934390df95709f48dcfd6fc5d8ad5ce');
INSERT INTO "entries" VALUES(11,'digits',11,'2026-11-21T19:18:53.137415+00:00','reserve','{"search":"first","steps":120,"trial":"b"}','0928cf4c8ee534116a35964c16352847a934390df95709f48dcfd6fc5d8ad5ce','60b1a6d5b24cd963c64500c9389b2af80c925fbf12713021be4390a93c138898');
INSERT INTO "entries" VALUES(12,'digits',12,'2026-11-21T19:18:53.158505+00:00','lease','{"search":"first","steps":60,"trial":"b"}','60b1a6d5b24cd963c64500c9389b2af80c925fbf12713021be4390a93c138898','ac6961a0bf15e1649e946a77b977af1b1f70e7d6590b72be2c5103840aa6a840');
INSERT INTO "entries" VALUES(13,'digits',13,'2026-11-21T19:18:53.185722+00:00','settle','{"search":"first","steps_taken":60,"trial":"b"}','ac6961a0bf15e1649e946a77b977af1b1f70e7d6590b72be2c5103840aa6a840','2a39d4aae5b30eea2514bc62ab4817412166bc67e3032f1927be6d74ed821968');
INSERT INTO "entries" VALUES(14,'digits',14,'2026-11-21T19:18:53.213025+00:00','close_search','{"search":"first"}','2a39d4aae5b30eea2514bc62ab4817412166bc67e3032f1927be6d74ed821968','ee0e6f1b6754983edb1921e943bef5503955245a656d48a3edd2df7c407f5b56');
INSERT INTO "entries" VALUES(15,'digits',15,'2026-11-21T19:18:53.594628+00:00','card','{"card_kind":"export","card_sha256":"28f862246ed595172b06102aa9cca7d08143832bd265ee504391528cc0414124","search":"first"}','ee0e6f1b6754983edb1921e943bef5503955245a656d48a3edd2df7c407f5b56','8158e6af0d712278ea8f8032350e55a1ff003b39014d54f8c6c52d935d49e5d9');
CREATE TABLE heads (dataset TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL);
INSERT INTO "heads" VALUES('digits',15,'8158e6af0d712278ea8f8032350e55a1ff003b39014d54f8c6c52d935d49e5d9');
CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('entries',15);
COMMIT;
