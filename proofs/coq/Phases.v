(* Phases of an execution, for proving that a schedule is valid: a run of loads, of
   new words, of drops, of stores, of one task, and loops of these.

   phase kept M s es F: from state s the events es are valid, leave exactly the
   words F in fast memory, and lose nothing of the content of the kept words, nor of
   what was saved. *)
From Coq Require Import Arith Lia List Permutation.
From iosim Require Import Machine.
Import ListNotations.

Section Phases.
Context {X : model}.
Notation word := (word X).
Notation event := (event X).
Notation state := (state X).
Variable kept : word -> Prop.
Variable M : nat.

Definition keeps (s s' : state) : Prop :=
  (forall w t, kept w -> In t (content s w) -> In t (content s' w)) /\
  (forall w t, In t (saved s w) -> In t (saved s' w)).

Lemma keeps_refl s : keeps s s.
Proof. split; auto. Qed.

Lemma keeps_trans a b c : keeps a b -> keeps b c -> keeps a c.
Proof. intros [H1 H2] [H3 H4]. split; auto. Qed.

Definition phase (s : state) (es : list event) (F : list word) : Prop :=
  valid M s es /\ Permutation (fast (run s es)) F /\ keeps s (run s es).

Lemma phase_nil s F : Permutation (fast s) F -> phase s [] F.
Proof. intros H. split; [ exact I | split; [ exact H | apply keeps_refl ] ]. Qed.

Lemma phase_app s a b F F' :
  phase s a F -> phase (run s a) b F' -> phase s (a ++ b) F'.
Proof.
  intros (V & _ & K) (V' & P' & K'). unfold phase. rewrite valid_app, run_app.
  split; [ auto | split; [ exact P' | now apply keeps_trans with (run s a) ] ].
Qed.

Lemma phase_perm s es F F' : phase s es F -> Permutation F F' -> phase s es F'.
Proof. intros (V & P & K) H. split; [ exact V | split; [ now transitivity F | exact K ] ]. Qed.

Lemma NoDup_perm {A} (a b : list A) : Permutation a b -> NoDup b -> NoDup a.
Proof. intros P. apply Permutation_NoDup. now apply Permutation_sym. Qed.

Lemma phase_load ws : forall s F, Permutation (fast s) F -> NoDup (ws ++ F) ->
  length (ws ++ F) <= M -> phase s (map Load ws) (ws ++ F).
Proof.
  induction ws as [| w ws IH]; intros s F P N L; [ now apply phase_nil | ].
  assert (Hw : ~ In w (fast s)).
  { cbn in N. inversion_clear N as [| ? ? H _]. intros Hw. apply H, in_or_app. right.
    now apply (Permutation_in _ P). }
  change (map Load (w :: ws)) with ([Load w] ++ map Load ws).
  assert (E : fast (run s [Load w]) = w :: fast s).
  { destruct s as [f c m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
  apply phase_perm with (ws ++ w :: F); [ | symmetry; apply Permutation_middle ].
  apply phase_app with (w :: F).
  - split; [ | split ].
    + split; [ exact I | split; [ | exact I ] ]. change (step s (Load w)) with (run s [Load w]).
      rewrite E. cbn. rewrite (Permutation_length P). cbn in L. rewrite app_length in L. lia.
    + rewrite E. now constructor.
    + destruct s as [f c m]. split; cbn; [ | auto ]. intros x t _ Ht. unfold upd.
      destruct (word_dec X w x); subst; [ apply in_or_app; now left | exact Ht ].
  - apply IH.
    + rewrite E. now constructor.
    + apply (NoDup_perm _ ((w :: ws) ++ F)); [ symmetry; apply Permutation_middle | exact N ].
    + rewrite app_length in *. cbn in *. lia.
Qed.

Lemma phase_new ws : forall s F, Permutation (fast s) F -> NoDup (ws ++ F) ->
  length (ws ++ F) <= M -> (forall w, In w ws -> input w = false /\ ~ kept w) ->
  phase s (map New ws) (ws ++ F).
Proof.
  induction ws as [| w ws IH]; intros s F P N L Hk; [ now apply phase_nil | ].
  assert (Hw : ~ In w (fast s)).
  { cbn in N. inversion_clear N as [| ? ? H _]. intros Hw. apply H, in_or_app. right.
    now apply (Permutation_in _ P). }
  change (map New (w :: ws)) with ([New w] ++ map New ws).
  assert (E : fast (run s [New w]) = w :: fast s) by now destruct s.
  apply phase_perm with (ws ++ w :: F); [ | symmetry; apply Permutation_middle ].
  destruct (Hk w (or_introl eq_refl)) as [Hi Hkw].
  apply phase_app with (w :: F).
  - split; [ | split ].
    + split; [ now split | split; [ | exact I ] ]. change (step s (New w)) with (run s [New w]).
      rewrite E. cbn. rewrite (Permutation_length P). cbn in L. rewrite app_length in L. lia.
    + rewrite E. now constructor.
    + destruct s as [f c m]. split; cbn; [ | auto ]. intros x t Hx Ht.
      rewrite upd_other; [ exact Ht | congruence ].
  - apply IH.
    + rewrite E. now constructor.
    + apply (NoDup_perm _ ((w :: ws) ++ F)); [ symmetry; apply Permutation_middle | exact N ].
    + rewrite app_length in *. cbn in *. lia.
    + intros. apply Hk. now right.
Qed.

Lemma remove_perm (w : word) a b :
  Permutation a b -> Permutation (remove (word_dec X) w a) (remove (word_dec X) w b).
Proof.
  induction 1 as [| x a b _ IH | x y a | a b c _ IH1 _ IH2]; cbn; auto.
  - destruct (word_dec X w x); auto.
  - destruct (word_dec X w x), (word_dec X w y); auto. constructor.
  - now transitivity (remove (word_dec X) w b).
Qed.

Lemma phase_drop ws : forall s F, Permutation (fast s) (ws ++ F) -> NoDup (ws ++ F) ->
  length (ws ++ F) <= M -> (forall w, In w ws -> ~ kept w) -> phase s (map Drop ws) F.
Proof.
  induction ws as [| w ws IH]; intros s F P N L Hk; [ now apply phase_nil | ].
  change (map Drop (w :: ws)) with ([Drop w] ++ map Drop ws).
  cbn in N, L. inversion_clear N as [| ? ? Hw N'].
  assert (P1 : Permutation (fast (run s [Drop w])) (ws ++ F)).
  { destruct s as [f c m]. cbn in *. apply (remove_perm w) in P. cbn in P.
    destruct (word_dec X w w); [ | congruence ]. now rewrite (notin_remove _ (ws ++ F) w Hw) in P. }
  apply phase_app with (ws ++ F).
  - split; [ | split ].
    + split; [ exact I | split; [ | exact I ] ].
      change (step s (Drop w)) with (run s [Drop w]). rewrite (Permutation_length P1). lia.
    + exact P1.
    + destruct s as [f c m]. split; cbn; [ | auto ]. intros x t Hx Ht.
      rewrite upd_other; [ exact Ht | ]. intros <-. apply (Hk w); [ now left | exact Hx ].
  - apply IH; [ exact P1 | exact N' | lia | ]. intros. apply Hk. now right.
Qed.

Lemma phase_do t s F : Permutation (fast s) F -> incl (needs t) F -> length F <= M ->
  ready t (content s) ->
  phase s [Do t] F /\ (forall w, In w (outs t) -> In t (content (run s [Do t]) w)).
Proof.
  intros P Hn L R. destruct s as [f c m]. cbn in *. unfold phase. cbn. split.
  - split; [ split; [ split; [ | exact R ] | split; [ | exact I ] ] | split; [ exact P | split ] ].
    + intros x Hx. apply (Permutation_in _ (Permutation_sym P)). auto.
    + now rewrite (Permutation_length P).
    + cbn. intros w t' _ H. unfold absorb. destruct (in_dec _ w (outs t)); [ now right | exact H ].
    + auto.
  - intros w Hw. unfold absorb. destruct (in_dec _ w (outs t)); [ now left | tauto ].
Qed.

(* Adding words that are in fast memory to what is saved. *)
Lemma phase_add ws : forall s F, Permutation (fast s) F -> incl ws F -> length F <= M ->
  phase s (map Add ws) F /\
  forall w t, In w ws -> In t (content s w) -> In t (saved (run s (map Add ws)) w).
Proof.
  induction ws as [| w ws IH]; intros s F P I L.
  { split; [ now apply phase_nil | contradiction ]. }
  destruct s as [f c m]. cbn in P.
  destruct (IH (step {| fast := f; content := c; saved := m |} (Add w)) F)
    as ((V & P' & K1 & K2) & S); trivial; [ intros x Hx; apply I; now right | ].
  cbn in K1, K2, S, V, P'. cbn. split.
  - split; [ split; [ apply (Permutation_in _ (Permutation_sym P)), I; now left | ] | ].
    + split; [ change (length f <= M); now rewrite (Permutation_length P) | exact V ].
    + split; [ exact P' | split; [ exact K1 | ] ]. intros x t Hx. apply K2.
      unfold upd. destruct (word_dec X w x); subst; rewrite ?in_app_iff; auto.
  - intros x t [<- | Hx] Ht; [ | now apply S ].
    apply K2. rewrite upd_same. apply in_or_app. now left.
Qed.

(* A loop: each turn leaves F and establishes P a, which later turns keep. *)
Lemma phase_loop {A} (body : A -> list event) (P : A -> state -> Prop) (Inv : state -> Prop) F l :
  (forall s s', keeps s s' -> Inv s -> Inv s') ->
  (forall a s s', keeps s s' -> P a s -> P a s') ->
  (forall a s, In a l -> Permutation (fast s) F -> Inv s ->
     phase s (body a) F /\ P a (run s (body a))) ->
  forall s, Permutation (fast s) F -> Inv s ->
  phase s (flat_map body l) F /\ forall a, In a l -> P a (run s (flat_map body l)).
Proof.
  intros SI SP. induction l as [| a l IH]; intros Hb s Hs Hi; cbn.
  - split; [ now apply phase_nil | contradiction ].
  - destruct (Hb a s (or_introl eq_refl) Hs Hi) as (Ha & Pa).
    destruct (IH (fun b s Hb' => Hb b s (or_intror Hb')) (run s (body a))) as (Hl & Pl).
    + apply Ha.
    + apply (SI s); [ apply Ha | exact Hi ].
    + split; [ now apply phase_app with F | ]. rewrite run_app.
      intros b [<- | Hb']; [ | auto ]. apply (SP _ (run s (body a))); [ apply Hl | exact Pa ].
Qed.
End Phases.

(* Storing words that are in fast memory. *)
Lemma store_all {X : model} M ws : forall s : state X,
  incl ws (fast s) -> length (fast s) <= M ->
  valid M s (map Store ws) /\
  fast (run s (map Store ws)) = fast s /\
  content (run s (map Store ws)) = content s /\
  (forall w, In w ws -> saved (run s (map Store ws)) w = content s w) /\
  (forall w, ~ In w ws -> saved (run s (map Store ws)) w = saved s w).
Proof.
  induction ws as [| w ws IH]; intros s Hw L; cbn; [ repeat split; auto; contradiction | ].
  destruct (IH (step s (Store w))) as (V & F & C & S1 & S2).
  { destruct s; cbn in *. intros x Hx. apply Hw. now right. }
  { now destruct s. }
  assert (E : fast (step s (Store w)) = fast s) by now destruct s.
  assert (EC : content (step s (Store w)) = content s) by now destruct s.
  split; [ | split; [ | split; [ | split ] ] ].
  - split; [ apply Hw; now left | split; [ now rewrite E | exact V ] ].
  - congruence.
  - congruence.
  - intros x Hx. destruct (in_dec (word_dec X) x ws) as [Hx' | Hx'].
    + rewrite S1 by exact Hx'. now rewrite EC.
    + destruct Hx as [<- | Hx]; [ | tauto ]. rewrite S2 by exact Hx'.
      destruct s; cbn. apply upd_same.
  - intros x Hx. rewrite S2 by tauto. destruct s; cbn. apply upd_other. tauto.
Qed.
